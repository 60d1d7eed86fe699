"""Reads the primitives of a GGUF header, never more than the file has."""

import struct
from typing import BinaryIO, Final

from lang_core import CheckpointError

REDO: Final = "download or convert the file again"

MAX_HEADER_BYTES: Final = 1 << 28
"""More than ten times the header of the largest vocabulary in use: what a header may make us hold."""


class Cursor:
    """A place in the header of an open file.

    Args:
        file: read from its start.
        size: of the file, in bytes.
        path: for messages.
    """

    def __init__(self, file: BinaryIO, size: int, path: str) -> None:
        self._file: Final = file
        self._size: Final = size
        self.path: Final = path
        self.position = 0

    @property
    def left(self) -> int:
        """How many bytes the header can still have."""
        return min(self._size, MAX_HEADER_BYTES) - self.position

    def take(self, count: int, what: str) -> bytes:
        """The next ``count`` bytes.

        Raises:
            CheckpointError: there are not so many.
        """
        self.need(count, 1, what)
        found = self._file.read(count)
        if len(found) != count:
            raise CheckpointError(f"{self.path}: the file changed while {what} was read: open it again")
        self.position += count
        return found

    def need(self, count: int, least: int, what: str) -> None:
        """Checks that ``count`` things of ``least`` bytes or more can follow.

        Raises:
            CheckpointError: they cannot.
        """
        if count * least > self.left:
            kind = (
                "truncated" if self._size <= MAX_HEADER_BYTES else f"damaged (a header has {MAX_HEADER_BYTES} at most)"
            )
            raise CheckpointError(
                f"{self.path}: {kind}: {what} needs {count * least} bytes or more at byte {self.position}, "
                f"{max(0, self.left)} are left: {REDO}"
            )

    def number(self, form: str, what: str) -> int:
        """An integer of a format character of ``struct``, little-endian."""
        return struct.unpack(f"<{form}", self.take(struct.calcsize(form), what))[0]

    def text(self, what: str) -> str:
        """A string: its length in 8 bytes, then UTF-8.

        Raises:
            CheckpointError: it is longer than the header, or no UTF-8.
        """
        length = self.number("Q", f"the length of {what}")
        try:
            return self.take(length, what).decode("utf-8")
        except UnicodeDecodeError as error:
            raise CheckpointError(f"{self.path}: {what} is not UTF-8 ({error}): {REDO}") from None
