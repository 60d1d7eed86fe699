"""A tiny model of sentence-transformers with a tokenizer of its own, as a bundle."""

from pathlib import Path
from typing import Final

import tokenizers
from tokenizers import models, pre_tokenizers, processors

from tests.goldens.encoders.cases import ENCODER_CASES
from tests.goldens.encoders.files import write_encoder_checkpoint
from tests.product._bundles import export

SENTENCE_CASE: Final = ENCODER_CASES["bert_sentence"]
_WORDS: Final = ("[UNK]", "[CLS]", "[SEP]", *(f"w{i}" for i in range(3, 67)))


def export_sentences(model: Path, output: Path) -> Path:
    """Writes the model's checkpoint, and exports a bundle that takes two sentences of eight tokens at a time."""
    model.mkdir()
    write_encoder_checkpoint(model, SENTENCE_CASE)
    write_sentence_tokenizer(model)
    return export(model, output, batch=2, sequence=8)


def write_sentence_tokenizer(directory: Path) -> None:
    """Writes a tokenizer whose tokens are the words w3 to w66."""
    vocabulary = {word: i for i, word in enumerate(_WORDS)}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer.save(str(directory / "tokenizer.json"))
