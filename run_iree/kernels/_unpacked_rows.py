"""Sixteen rows of W as they are unpacked for products of several tokens, a part of their columns at a time.

They lie on the stack: integers of 16 or 8 bits in ``%rows`` and their scales in ``%scales``, or f32 with their scales
in them. Bytes are unsigned: as they are stored if they have few bits, else 128 more than their values.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from run_iree.kernels._lanes_matmul import ROWS

ROW_PAD: Final = 16
"""Elements between rows, so that they do not lie a power of two apart."""

ROW_SCALES: Final = 32
"""Places of a row in ``%scales``."""

EXCESS: Final = 128
"""Excess of unsigned bytes over signed ones."""


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Lines that unpack a part of a row.

    Attributes:
        kind: i16 or i8 with scales apart, or f32; i8 are unsigned.
        columns: columns of a part.
        scaled: columns that share a scale.
        minima: place of a row's first minimum, negated, among its scales; 0 if there are none.
        offset: excess of the integers over their values.
        stored: bytes of a part.
        numbers: index constants that the lines need.
        before: lines ahead of all loops.
        lines: lines that unpack row ``%r`` from its part at ``%at``.
    """

    kind: str
    columns: int
    scaled: int
    minima: int
    offset: int
    stored: int
    numbers: Sequence[int]
    before: Sequence[str]
    lines: Sequence[str]

    @property
    def stride(self) -> int:
        """Elements from one row to the next."""
        return self.columns + ROW_PAD

    @property
    def rows(self) -> str:
        """Type of ``%rows``."""
        return rows_type(self.columns, self.kind)


SCALES: Final = f"memref<{ROWS * ROW_SCALES}xf32>"
"""Type of ``%scales``, for each row the scales and minima of its parts."""


def stored_integers(name: str, integers: str, sign: str, kind: str, lanes: int) -> tuple[list[str], str]:
    """Returns lines and the name of integers as they lie in ``%rows``: of 16 bits, or unsigned ones of 8."""
    if kind == "i16":
        return [f"%{name} = arith.ext{sign} {integers} : vector<{lanes}xi8> to vector<{lanes}xi16>"], f"%{name}"
    if sign == "ui":
        return [], integers
    return [f"%{name} = arith.xori {integers}, %flip : vector<{lanes}xi8>"], f"%{name}"


def rows_type(columns: int, kind: str) -> str:
    """Returns the type of ``%rows``."""
    return f"memref<{ROWS * (columns + ROW_PAD)}x{kind}>"
