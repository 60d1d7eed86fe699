"""Journal of an archive that is being written, from which another process can resume."""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from lang_core import json_value
from run_iree.archive._values import NonFinite

MARK_BYTES: Final = 64 << 20  # between two marks, about
_BLOCK: Final = 1 << 20


def partial_name(name: str) -> str:
    """Returns the file name of an archive until it is complete."""
    return f".{name}.partial"


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of writing an archive.

    Attributes:
        offset: number of bytes, from the file's start, that are in it.
        digest: SHA-256 object of these, to be updated with the bytes that follow.
        nonfinite: counts of NaNs and infinities so far, by the entry's name.
    """

    offset: int = 0
    digest: Any = field(default_factory=hashlib.sha256)
    nonfinite: Mapping[str, NonFinite] = field(default_factory=dict)


class ArchiveJournal:
    """File beside an archive: a line with the archive's key, then a line per mark.

    A mark holds the SHA-256 of the bytes before it, so that bytes lost in a crash of the machine are noticed.

    Args:
        path: path of the journal.
        key: text that identifies the archive's contents. A journal with another key is ignored.
    """

    def __init__(self, path: Path, key: str) -> None:
        self._path = path
        self._key = key

    def progress(self, archive: Path) -> Progress:
        """Returns the progress at the last mark; none if the archive's bytes are not those of the mark."""
        mark = self._last_mark()
        if mark is None or not archive.is_file():
            return Progress()
        offset, wanted, counts = mark
        digest, left = hashlib.sha256(), offset
        with archive.open("rb") as file:
            while left and (block := file.read(min(left, _BLOCK))):
                digest.update(block)
                left -= len(block)
        if left or digest.hexdigest() != wanted:
            return Progress()
        return Progress(offset, digest, {name: NonFinite(*count) for name, count in counts.items()})

    def _last_mark(self) -> tuple[int, str, dict[str, list[int]]] | None:
        try:
            head, *marks = self._path.read_text().splitlines()
            if json_value(head) != {"key": self._key}:
                return None
        except (OSError, ValueError):
            return None
        for line in reversed(marks):
            try:
                mark = json_value(line)
                return mark["offset"], mark["sha256"], mark["nonfinite"]
            except (ValueError, KeyError, TypeError):
                continue  # the process was killed while it wrote this line: the previous one counts
        return None

    def begin(self, progress: Progress) -> None:
        """Starts the journal anew from this progress."""
        beside = self._path.with_name(f"{self._path.name}.new")
        beside.write_text(json.dumps({"key": self._key}) + "\n")
        os.replace(beside, self._path)
        if progress.offset:
            self.marker(progress.offset, progress.nonfinite)(progress.digest.hexdigest())

    def marker(self, offset: int, nonfinite: Mapping[str, NonFinite]) -> Callable[[str], None]:
        """Returns a function that writes a mark, to be called with the SHA-256 of the first ``offset`` bytes."""
        mark = {"offset": offset, "nonfinite": {name: list(count) for name, count in nonfinite.items()}}

        def note(sha256: str) -> None:
            with self._path.open("a") as file:
                file.write(json.dumps(mark | {"sha256": sha256}) + "\n")

        return note
