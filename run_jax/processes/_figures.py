"""Figures of a rank: bytes read, memory, compute."""

import os
import resource
from pathlib import Path
from typing import Any, Final

_WEIGHTS: Final = (".irpa", ".safetensors", ".gguf")
_STATUS: Final = Path("/proc/self/status")
_MAPS: Final = Path("/proc/self/smaps")
_PAGE: Final = 1024  # the unit of both files


class Figures:
    """Figures of this process, taken when its sessions close.

    Attributes:
        parameter_bytes: bytes of parameters that were read: those of this rank's devices.
        touched_bytes: bytes of the maps of weights' files that this process has touched.
        anonymous_bytes: peak of anonymous memory.
    """

    def __init__(self) -> None:
        self.parameter_bytes = 0
        self.touched_bytes = 0
        self.anonymous_bytes = 0

    def note(self, session: Any) -> None:
        """Takes the figures of a session that is about to close; does nothing of another object."""
        read = getattr(session, "parameter_bytes", None)
        if read is not None:
            self.parameter_bytes += read
            self.touched_bytes += touched_bytes()
            self.anonymous_bytes = max(self.anonymous_bytes, anonymous_bytes())

    def as_json(self) -> dict[str, float]:
        """Returns the figures, with the seconds of processors that this process has taken."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "parameter_bytes": self.parameter_bytes,
            "touched_bytes": self.touched_bytes,
            "anonymous_bytes": self.anonymous_bytes,
            "processor_seconds": used.ru_utime + used.ru_stime,
        }


def anonymous_bytes() -> int:
    """Returns this process's anonymous memory, or 0 if it is unknown."""
    return _field(_STATUS.read_text(), "RssAnon:") if _STATUS.exists() else 0


def touched_bytes() -> int:
    """Returns the pages of maps of weights' files that this process has touched, 0 if the system does not say."""
    if not _MAPS.exists():
        return 0
    total, counted = 0, False
    for line in _MAPS.read_text().splitlines():
        name, _, rest = line.partition(" ")
        if not name.endswith(":"):  # begins a map
            counted = os.path.splitext(rest)[1] in _WEIGHTS
        elif counted and name == "Rss:":
            total += _PAGE * int(rest.split()[0])
    return total


def _field(text: str, name: str) -> int:
    return next((_PAGE * int(line.split()[1]) for line in text.splitlines() if line.startswith(name)), 0)
