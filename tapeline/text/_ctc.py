"""Vocabularies of CTC models, whose results are characters of frames and which encode no text."""

from pathlib import Path
from typing import Final

from tapeline.text._assembly import TOKENIZER_CONFIG, TOKENIZER_FILE, read_object

CTC_TOKENIZERS: Final = ("Wav2Vec2CTCTokenizer", "Wav2Vec2Tokenizer")
"""Names of transformers' tokenizers of CTC models."""


def has_characters(directory: Path) -> bool:
    """Returns whether the vocabulary of a directory is that of a CTC model."""
    if (directory / TOKENIZER_FILE).exists():
        return False
    name = read_object(directory / TOKENIZER_CONFIG).get("tokenizer_class")
    if isinstance(name, str):
        return name in CTC_TOKENIZERS
    names = read_object(directory / "config.json").get("architectures")
    return isinstance(names, list) and any(str(name).endswith("ForCTC") for name in names)
