"""Findings of a target: one input per kind, the shortest that was seen."""

import hashlib
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).absolute().parents[2]


class SlowError(Exception):
    """An input took more CPU time than its target may."""


def signature_of(error: BaseException) -> str:
    """Returns the kind of a finding: the error's type and the innermost line of this repository that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(_ROOT)]
    place = f"{Path(own[-1].filename).stem}-{own[-1].name}" if own else "elsewhere"
    return re.sub(r"[^\w-]", "_", f"{type(error).__name__}-{place}")


class Findings:
    """Folder with an input and a traceback per kind of finding."""

    def __init__(self, folder: Path) -> None:
        """Makes the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder: Final = folder
        self._sizes: Final = dict[str, int]()

    def add(self, data: bytes, error: BaseException) -> None:
        """Keeps an input, if it is the first or the shortest of its kind."""
        signature = signature_of(error)
        if len(data) < self._sizes.get(signature, 2**62):
            self._sizes[signature] = len(data)
            (self._folder / signature).write_bytes(data)
            (self._folder / f"{signature}.txt").write_text("".join(traceback.format_exception(error)))


def minimize(data: bytes, still: Callable[[bytes], bool], tries: int = 2000) -> bytes:
    """Returns a shorter input, by leaving out pieces, for which ``still`` returns True.

    >>> minimize(b"xxxxaxxbxx", lambda data: b"a" in data and b"b" in data)
    b'ab'
    """
    size = max(1, len(data) // 2)
    while tries > 0:
        start, shorter = 0, False
        while start < len(data) and tries > 0:
            candidate = data[:start] + data[start + size :]
            tries -= 1
            if still(candidate):
                data, shorter = candidate, True
            else:
                start += size
        if size == 1 and not shorter:
            break
        size = size if shorter and size == 1 else max(1, size // 2)
    return data


def name_of(data: bytes) -> str:
    """Returns the file name of an input in a corpus."""
    return hashlib.sha256(data).hexdigest()[:16]
