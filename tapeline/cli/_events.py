"""Progress of long calls, as callers receive it."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProgressEvent:
    """State of a long call; its ``str`` is one line of text.

    Attributes:
        text: step that begins, warning, or name of what is counted in bytes.
        done: bytes done so far; None where nothing is counted.
        total: bytes in all; None where nothing is counted.

    >>> print(ProgressEvent("weights", 1 << 20, 4 << 20))
    weights: 1 of 4 MiB
    """

    text: str
    done: int | None = None
    total: int | None = None

    def __str__(self) -> str:
        if self.done is None or self.total is None:
            return self.text
        return f"{self.text}: {self.done / 2**20:.0f} of {self.total / 2**20:.0f} MiB"


Progress = Callable[[ProgressEvent], None]
"""Receives each event; ``print`` is one."""


def no_progress(event: ProgressEvent) -> None:
    """Ignores an event."""
    del event
