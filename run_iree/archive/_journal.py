"""What is known of an archive that is being written, so that another process can go on with it."""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from run_iree.archive._values import NonFinite

MARK_BYTES: Final = 64 << 20  # how much is written, at most about, between two marks
_BLOCK: Final = 1 << 20


def partial_name(name: str) -> str:
    """What an archive with a journal is called until it is complete."""
    return f".{name}.partial"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an archive is.

    Attributes:
        offset: so many bytes, from the file's start, are in it.
        digest: their SHA-256, as an object that takes the bytes that follow.
        nonfinite: NaNs and infinities so far, by the entry's name.
    """

    offset: int = 0
    digest: Any = field(default_factory=hashlib.sha256)
    nonfinite: Mapping[str, NonFinite] = field(default_factory=dict)


class Journal:
    """A file beside an archive: a line that says what the archive is to be, then a line per mark.

    A mark holds the SHA-256 of what stands before it: what a crash of the machine lost is noticed.

    Args:
        path: of the journal.
        key: what decides about the archive's bytes. A journal of another key is of no use.
    """

    def __init__(self, path: Path, key: str) -> None:
        self._path = path
        self._key = key

    def progress(self, archive: Path) -> Progress:
        """How far the archive is, by the last mark; none where the archive's bytes are not the mark's."""
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
        return Progress(offset, digest, {name: NonFinite(*found) for name, found in counts.items()})

    def _last_mark(self) -> tuple[int, str, dict[str, list[int]]] | None:
        try:
            head, *marks = self._path.read_text().splitlines()
            if json.loads(head) != {"key": self._key}:
                return None
        except (OSError, ValueError):
            return None
        for line in reversed(marks):
            try:
                mark = json.loads(line)
                return mark["offset"], mark["sha256"], mark["nonfinite"]
            except (ValueError, KeyError, TypeError):
                continue  # the process was killed while it wrote this line: the one before holds
        return None

    def begin(self, progress: Progress) -> None:
        """Starts the file anew with what holds."""
        beside = self._path.with_name(f"{self._path.name}.new")
        beside.write_text(json.dumps({"key": self._key}) + "\n")
        os.replace(beside, self._path)
        if progress.offset:
            self.marker(progress.offset, progress.nonfinite)(progress.digest.hexdigest())

    def marker(self, offset: int, nonfinite: Mapping[str, NonFinite]) -> Callable[[str], None]:
        """What to call with the SHA-256 of the first ``offset`` bytes once they are in the file."""
        mark = {"offset": offset, "nonfinite": {name: list(found) for name, found in nonfinite.items()}}

        def note(sha256: str) -> None:
            with self._path.open("a") as file:
                file.write(json.dumps(mark | {"sha256": sha256}) + "\n")

        return note
