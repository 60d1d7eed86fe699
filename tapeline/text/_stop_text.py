"""Stop strings: text is held back while it may still begin one, and never sent in part."""

from collections.abc import Sequence
from typing import Final

from lang_core import checked_choices


class StopText:
    """Text that ends before the first stop string in it, whatever the pieces in which it comes.

    The first one is that which is complete first; of those that are complete at once, the longest.

    Args:
        stops: strings that end the text, none of them empty.
        keep: True gives the stop string as well.

    Attributes:
        stopped: whether one was read.
        stop: the one that was read; None before.

    >>> text = StopText(["END"])
    >>> text.push("one E"), text.push("N two EN"), text.push("D three"), text.stopped
    ('one ', 'EN two ', '', True)
    """

    @checked_choices
    def __init__(self, stops: Sequence[str], *, keep: bool = False) -> None:
        self._stops: Final = tuple(stops)
        self._keep: Final = keep
        self._held = ""
        self.stopped = False
        self.stop: str | None = None

    def push(self, piece: str) -> str:
        """Returns the text that may be sent after another piece."""
        if self.stopped:
            return ""
        text = self._held + piece
        ends = [(at + len(stop), at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if ends:
            end, start, self.stop = min(ends)
            self.stopped, self._held = True, ""
            return text[: end if self._keep else start]
        kept = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept]

    def finish(self) -> str:
        """Returns the text that was held back, as the text ends here."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Returns the length of the longest end of the text that begins a stop string."""
    return next((size for size in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:size])), 0)
