"""Spaces before punctuation, which decoding removes if ``clean_up_tokenization_spaces`` asks for it."""

from typing import Final

_REPLACED: Final = (
    *((f" {mark}", mark) for mark in ".?!,"),
    (" ' ", "'"),
    *((f" {word}", word) for word in ("n't", "'m", "'s", "'ve", "'re")),
)
_REACH: Final = 3  # characters behind a space that a replacement looks at


def without_spaces(text: str) -> str:
    """Returns a text without the spaces before punctuation.

    >>> without_spaces("It is n't , is it ?")
    "It isn't, is it?"
    """
    for written, wanted in _REPLACED:
        text = text.replace(written, wanted)
    return text


class SpaceStream:
    """Removes spaces before punctuation from a text that comes in pieces; the pieces joined are `without_spaces`."""

    def __init__(self) -> None:
        self._held = ""

    def push(self, piece: str) -> str:
        """Returns the text that the next piece settles."""
        text = self._held + piece
        cut = _settled(text)
        self._held = text[cut:]
        return without_spaces(text[:cut])

    def finish(self) -> str:
        """Returns the text that was held back. The stream is then as new."""
        text, self._held = self._held, ""
        return without_spaces(text)


def _settled(text: str) -> int:
    """Returns the length of the part that later text does not change: all before the spaces near the end."""
    end = len(text)
    while (space := text.rfind(" ", 0, end)) >= 0 and end - space <= _REACH + 1:
        end = space
    return end
