"""Reads the primitives of a GGUF header, never beyond the file."""

import struct
from typing import BinaryIO, Final

from lang_core import CheckpointError

REDO: Final = "download or convert the file again"

MAX_HEADER_BYTES: Final = 1 << 28
"""Largest header that is read: more than ten times that of the largest vocabulary in use."""


class Cursor:
    """Position in the header of an open file.

    Args:
        file: open file, read from its start.
        size: size of the file in bytes.
        path: path of the file, for messages.
    """

    def __init__(self, file: BinaryIO, size: int, path: str) -> None:
        self._file: Final = file
        self._size: Final = size
        self.path: Final = path
        self.position = 0

    @property
    def left(self) -> int:
        """Number of bytes that the header can still have."""
        return min(self._size, MAX_HEADER_BYTES) - self.position

    def take(self, count: int, what: str) -> bytes:
        """Reads the next ``count`` bytes.

        Raises:
            CheckpointError: fewer are left.
        """
        self.need(count, 1, what)
        taken = self._file.read(count)
        if len(taken) != count:
            raise CheckpointError(f"{self.path}: the file changed while {what} was read: open it again")
        self.position += count
        return taken

    def need(self, count: int, least: int, what: str) -> None:
        """Checks that ``count`` things of at least ``least`` bytes can follow.

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
        """Reads a little-endian integer of a format character of ``struct``."""
        return struct.unpack(f"<{form}", self.take(struct.calcsize(form), what))[0]

    def text(self, what: str) -> str:
        """Reads a string: its length in 8 bytes, then UTF-8.

        Raises:
            CheckpointError: it is longer than the header, or not UTF-8.
        """
        length = self.number("Q", f"the length of {what}")
        try:
            return self.take(length, what).decode("utf-8")
        except UnicodeDecodeError as error:
            raise CheckpointError(f"{self.path}: {what} is not UTF-8 ({error}): {REDO}") from None
