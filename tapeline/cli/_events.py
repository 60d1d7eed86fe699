"""Progress of long calls, as callers receive it."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProgressEvent:
    """State of a long call; its ``str`` is one line of text.

    Attributes:
        text: step that begins, warning, or name of the counted things.
        done: bytes done so far, or steps before the one that begins; None if nothing is counted.
        total: bytes or steps in all; None if nothing is counted.
        step: name of the step that begins, if steps are counted; None if bytes are.

    >>> print(ProgressEvent("weights", 1 << 20, 4 << 20))
    weights: 1 of 4 MiB
    >>> print(ProgressEvent("verifying", 1, 2, "decode"))
    verifying 2 of 2: decode
    """

    text: str
    done: int | None = None
    total: int | None = None
    step: str | None = None

    def __str__(self) -> str:
        if self.done is None or self.total is None:
            return self.text
        if self.step is not None:
            return f"{self.text} {self.done + 1} of {self.total}: {self.step}"
        unit, size = byte_unit(self.total)
        return f"{self.text}: {self.done / size:.0f} of {self.total / size:.0f} {unit}"


def byte_unit(total: int) -> tuple[str, int]:
    """Returns the unit in which a number of bytes up to a total is told, and its bytes.

    >>> byte_unit(300_000), byte_unit(3_000_000)
    (('KiB', 1024), ('MiB', 1048576))
    """
    return ("MiB", 1 << 20) if total >= 1 << 20 else ("KiB", 1 << 10)


Progress = Callable[[ProgressEvent], None]
"""Receives each event; ``print`` is one."""


def no_progress(event: ProgressEvent) -> None:
    """Ignores an event."""
    del event
