"""Tiny rerankers."""

from pathlib import Path

import tokenizers
from tokenizers import models, pre_tokenizers, processors

from tests.goldens.encoders.cases import ENCODER_CASES, EncoderCase
from tests.goldens.encoders.files import write_encoder_checkpoint

CROSS_ENCODER = ENCODER_CASES["xlm_roberta_classifier"]


def write_ranker(directory: Path, case: EncoderCase = CROSS_ENCODER) -> Path:
    """Writes a checkpoint of a reranker that reads the words query and w4 to w66, and returns its directory."""
    directory.mkdir()
    write_encoder_checkpoint(directory, case)
    words = {word: i for i, word in enumerate(("<s>", "<pad>", "</s>", "query", *(f"w{i}" for i in range(4, 67))))}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    tokenizer.save(str(directory / "tokenizer.json"))
    return directory
