"""Token ids as a user writes and reads them: `1,2,3`."""

import numbers
import re
from collections.abc import Iterable

from lang_core import InputError

_ID = re.compile(r"[0-9]+")


def parse_token_ids(text: str, model_size: int) -> list[int]:
    """Returns the ids of a comma list.

    Args:
        text: value of ``token_ids``.
        model_size: the model's vocabulary V.

    Raises:
        InputError: the list is empty, an entry is not a whole number, or an id is not below V.

    >>> parse_token_ids("1, 20,3", model_size=32)
    [1, 20, 3]
    """
    entries = [entry.strip() for entry in text.split(",")]
    for position, entry in enumerate(entries):
        if not _ID.fullmatch(entry):
            raise InputError(
                f"token_ids={text!r}: entry {position} is {entry!r}, no token id; give a comma list such as 1,2,3"
            )
    ids = [int(entry) for entry in entries]
    check_ids(ids, model_size, "`token_ids`")
    return ids


def check_ids(ids: Iterable[int], model_size: int, source: str) -> None:
    """Checks that ids are of the model's vocabulary.

    Raises:
        InputError: one is not, or is not an integer; ``source`` names their origin.
    """
    for position, one in enumerate(ids):
        if not isinstance(one, numbers.Integral) or isinstance(one, bool):
            raise InputError(
                f"{source} has {one!r:.80} at position {position}, of type {type(one).__name__}: expected a token id, "
                "an integer"
            )
        if not 0 <= one < model_size:
            raise InputError(
                f"{source} has token id {one} at position {position}, but the model's vocabulary ends at "
                f"{model_size - 1}: use this model's tokenizer or ids"
            )


class IdStream:
    """Counterpart of `TextStream` without a tokenizer: a comma list of the ids."""

    def __init__(self) -> None:
        self._first = True

    def push(self, token_id: int) -> str:
        """Returns the text to print for the next id."""
        text = str(token_id) if self._first else f",{token_id}"
        self._first = False
        return text

    def finish(self) -> str:
        """Returns the rest of the text: none."""
        return ""
