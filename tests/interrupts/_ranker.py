"""A tiny reranker."""

from pathlib import Path

import tokenizers
from tokenizers import models, pre_tokenizers, processors

from tests.goldens.encoders.cases import ENCODER_CASES
from tests.goldens.encoders.files import write_encoder_checkpoint


def write_ranker(directory: Path) -> Path:
    """Writes a checkpoint of a reranker that reads the words w3 to w66, and returns its directory."""
    directory.mkdir()
    write_encoder_checkpoint(directory, ENCODER_CASES["xlm_roberta_classifier"])
    words = {word: i for i, word in enumerate(("<s>", "<pad>", "</s>", *(f"w{i}" for i in range(3, 67))))}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    tokenizer.save(str(directory / "tokenizer.json"))
    return directory
