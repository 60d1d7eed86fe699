"""Joins pieces of a file into units of 2 MiB, which the system caches and maps as one page each.

Linux caches the bytes of one write in pages as large as their length and alignment in the file allow (ext4 since 6.16,
XFS before), and maps the file by the CPU's large pages only if these are whole.
"""

from collections.abc import Iterator
from typing import Final

UNIT_BYTES: Final = 2 << 20  # a large page of x86-64 and arm64; units of 4 and 8 MiB were no faster


class Units:
    """Buffer that takes the bytes of a file in order and returns units that end at multiples of their size.

    It holds less than a unit. Whole units within a piece are returned without a copy.
    """

    def __init__(self, offset: int) -> None:
        """Begins at a byte of the file, and so with the rest of the unit in which that lies."""
        self._unit: Final = UNIT_BYTES
        self._buffer: Final = memoryview(bytearray(self._unit))
        self._held = 0
        self._room = self._unit - offset % self._unit

    def add(self, data: bytes | memoryview) -> Iterator[memoryview]:
        """Takes a piece of any size; yields complete units, each valid until the next is taken."""
        left = memoryview(data)
        while len(left) >= self._room:
            if self._held:
                left = self._keep(left, self._room)
                yield self.rest()
            else:
                count = len(left) - (len(left) - self._room) % self._unit
                self._room = self._unit
                yield left[:count]
                left = left[count:]
        self._keep(left, len(left))

    def _keep(self, data: memoryview, count: int) -> memoryview:
        """Copies the first ``count`` bytes into the unit; returns the others."""
        self._buffer[self._held : self._held + count] = data[:count]
        self._held += count
        self._room -= count
        return data[count:]

    def rest(self) -> memoryview:
        """Returns the bytes held and lets go of them; the next byte begins a unit."""
        held, self._held, self._room = self._held, 0, self._unit
        return self._buffer[:held]
