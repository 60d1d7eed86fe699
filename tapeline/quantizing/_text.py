"""The text over which loss is measured."""

from importlib.resources import files
from pathlib import Path
from typing import Final

from lang_core import InputError
from tapeline.text import Tokenizer

CALIBRATION_FILE: Final = "calibration.txt"
"""File beside this module with the text that is taken if none is given."""

LEAST_TOKENS: Final = 64
"""Tokens that a text has at least."""


def read_calibration(directory: Path, text: Path | None, tokens: int) -> list[int]:
    """Returns the first tokens of a text.

    Args:
        directory: directory with the tokenizer.
        text: file of text, UTF-8; the built-in text if None.
        tokens: the most tokens.

    Raises:
        InputError: the text is too short or not UTF-8.
    """
    try:
        if text is None:
            written = files(__package__ or "").joinpath(CALIBRATION_FILE).read_text(encoding="utf-8")
        else:
            written = text.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"calibration={text}: cannot be read as text ({error}): give a file in UTF-8") from error
    ids = Tokenizer.load(directory).encode(written)[:tokens]
    if len(ids) < LEAST_TOKENS:
        raise InputError(
            f"calibration={text}: has {len(ids)} tokens, expected {LEAST_TOKENS} at least: give a longer text"
        )
    return ids
