"""Lists that lie on disk, to be read forward and backward."""

import marshal
import os
import tempfile
from array import array
from collections.abc import Iterator
from typing import Any, BinaryIO, Final, Protocol, cast

# Bytes of a list that stay in memory; a longer one goes to a temporary file without a name.
IN_MEMORY: Final = 1 << 18
_LENGTH: Final = 4


class SegmentJournal(Protocol):
    """Records in order. A Python list is one that stays in memory."""

    def append(self, record: tuple[Any, ...], /) -> None:
        """Adds a record."""
        ...

    def __iter__(self) -> Iterator[tuple[Any, ...]]: ...

    def __reversed__(self) -> Iterator[tuple[Any, ...]]: ...


class DiskJournal:
    """Records on disk; each can be marshalled. A record's length stands before and behind it."""

    def __init__(self) -> None:
        self._file = cast(BinaryIO, tempfile.SpooledTemporaryFile(IN_MEMORY))  # noqa: SIM115 - closed by close()
        self._end = 0

    def append(self, record: tuple[Any, ...], /) -> None:
        """Adds a record."""
        data = marshal.dumps(tuple(record))
        length = len(data).to_bytes(_LENGTH, "little")
        self._file.seek(self._end)
        self._file.write(length + data + length)
        self._end += len(data) + 2 * _LENGTH

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        place = 0
        while place < self._end:
            length = self._length_at(place)
            yield marshal.loads(self._file.read(length))
            place += length + 2 * _LENGTH

    def __reversed__(self) -> Iterator[tuple[Any, ...]]:
        place = self._end
        while place > 0:
            length = self._length_at(place - _LENGTH)
            self._file.seek(place - _LENGTH - length)
            yield marshal.loads(self._file.read(length))
            place -= length + 2 * _LENGTH

    def _length_at(self, place: int) -> int:
        self._file.seek(place)
        return int.from_bytes(self._file.read(_LENGTH), "little")

    def close(self) -> None:
        """Gives the file up."""
        self._file.close()


class DiskBytes:
    """Pieces of bytes on disk, by number."""

    def __init__(self) -> None:
        self._file = cast(BinaryIO, tempfile.SpooledTemporaryFile(IN_MEMORY))  # noqa: SIM115 - closed by close()
        self._bounds = array("q", [0])

    def add(self, data: bytes) -> int:
        """Adds a piece, and returns its number."""
        self._file.seek(0, os.SEEK_END)
        self._file.write(data)
        self._bounds.append(self._bounds[-1] + len(data))
        return len(self._bounds) - 2

    def read(self, number: int) -> bytes:
        """Returns a piece."""
        begin, end = self._bounds[number], self._bounds[number + 1]
        self._file.seek(begin)
        return self._file.read(end - begin)

    def close(self) -> None:
        """Gives the file up."""
        self._file.close()
