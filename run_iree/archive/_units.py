"""Pieces of a file joined into units, each of which the system keeps and maps as one page of 2 MiB.

Linux caches what one call writes in pages as large as its length and the alignment of its place in the file allow (ext4
since 6.16, XFS before), and maps the file by the CPU's large pages only where they are whole.
"""

from collections.abc import Iterator
from typing import Final

UNIT_BYTES: Final = 2 << 20  # a large page of x86-64 and arm64; units of 4 and 8 MiB were no faster


class Units:
    """Takes the bytes of a file in order and gives them back in units that end at multiples of their size.

    Holds less than a unit. What a piece has of whole units is given back as it is, without being copied.
    """

    def __init__(self, offset: int) -> None:
        """Begins with byte number ``offset`` of the file, and so with what is left of the unit that it lies in."""
        self._unit: Final = UNIT_BYTES
        self._buffer: Final = memoryview(bytearray(self._unit))
        self._held = 0
        self._room = self._unit - offset % self._unit

    def add(self, data: bytes | memoryview) -> Iterator[memoryview]:
        """Takes a piece of any size; yields what is complete, good until the next is asked for."""
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
        """Copies so many bytes into the unit; returns those behind them."""
        self._buffer[self._held : self._held + count] = data[:count]
        self._held += count
        self._room -= count
        return data[count:]

    def rest(self) -> memoryview:
        """What is held, which is not held any more; the next byte that is taken begins a unit."""
        held, self._held, self._room = self._held, 0, self._unit
        return self._buffer[:held]
