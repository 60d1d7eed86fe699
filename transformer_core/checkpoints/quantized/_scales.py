"""Scales of quantised weights, refused if they are not finite, and the groups of columns that share them."""

import math
from typing import Any, Final

import numpy as np

from transformer_core.checkpoints.quantized._stored import Part

_Array = np.ndarray[Any, Any]

FLOATS: Final = ("F32", "F16", "BF16")
SMALL_FLOATS: Final = ("F8_E4M3", "F8_E5M2")
EXPONENTS: Final = ("U8", "F8_E8M0")
"""Dtypes of scales that are powers of two: a byte e says 2**(e - 127), and 255 is NaN (OCP Microscaling 1.0)."""


def _small_floats() -> dict[str, _Array]:
    """Returns the f32 of each byte, by dtype (FP8 Formats for Deep Learning, 2022, table 1)."""
    stored = np.arange(256, dtype=np.uint16)
    exponents, mantissas = stored >> 3 & 15, stored & 7
    normal = np.ldexp(1 + mantissas / 8, exponents.astype(np.int32) - 7)
    values = np.where(exponents > 0, normal, mantissas * 2.0**-9)
    values[stored & 127 == 127] = np.nan  # E4M3 has no infinities
    return {
        "F8_E4M3": np.where(stored < 128, values, -values).astype(np.float32),
        "F8_E5M2": (stored << 8).view(np.float16).astype(np.float32),  # the upper byte of an f16
    }


_VALUES: Final = _small_floats()


def small_floats(dtype: str, stored: _Array) -> _Array:
    """Returns the f32s that bytes of an 8-bit float say, by the name of its dtype."""
    return _VALUES[dtype][stored]


def powers_of_two(exponents: _Array) -> _Array:
    """Returns the f32s that E8M0 bytes say; NaN for 255."""
    with np.errstate(over="ignore"):
        powers = np.ldexp(np.float32(1), exponents.astype(np.int32) - 127)
    return np.where(exponents == 255, np.float32(np.nan), powers)


class GridRows:
    """Numbers of the rows of a matrix, stored once for those that share them.

    Args:
        part: stored numbers.
        view: shape in which they are seen, [row blocks, groups], or [groups, rows] if ``transposed``.
        rows: rows of one matrix.
        block: rows of a matrix that share their numbers.
        transposed: whether rows of the matrix are columns of ``view``.
    """

    def __init__(
        self, part: Part, view: tuple[int, int], *, rows: int = 1, block: int = 1, transposed: bool = False
    ) -> None:
        self.part: Final = part
        self._view: Final = view
        self._rows: Final = rows
        self._block: Final = block
        self._transposed: Final = transposed

    def of(self, part: Part) -> "GridRows":
        """Returns the same places of another part."""
        return GridRows(part, self._view, rows=self._rows, block=self._block, transposed=self._transposed)

    def __call__(self, start: int, stop: int) -> _Array:
        """Returns the numbers of rows ``start`` to ``stop`` of all matrices in turn, [rows, groups], as stored."""
        stored = self.part.read().reshape(self._view)
        if self._transposed:
            return stored[:, start:stop].T
        if self._block == 1:
            return stored[start:stop]
        index = np.arange(start, stop)
        per_matrix = -(-self._rows // self._block)
        return stored[index // self._rows * per_matrix + index % self._rows // self._block]


class Scales:
    """Scales of the rows of a matrix.

    Args:
        grid: stored scales.
        divisor: scale of the whole tensor that the others are divided by.
    """

    def __init__(self, grid: GridRows, divisor: Part | None = None) -> None:
        self._grid: Final = grid
        self._divisor: Final = divisor

    def __call__(self, start: int, stop: int) -> _Array:
        """Returns the scales of rows ``start`` to ``stop``, f32 [rows, groups].

        Raises:
            CheckpointError: a scale is not finite.
        """
        stored, part = self._grid(start, stop), self._grid.part
        if part.dtype in EXPONENTS:
            scales = powers_of_two(stored)
        elif part.dtype in SMALL_FLOATS:
            scales = small_floats(part.dtype, stored)
        else:
            scales = stored.astype(np.float32)
        if self._divisor is not None:
            whole = self._divisor.read().reshape(()).astype(np.float32)
            if not np.isfinite(whole):
                self._divisor.refuse(f"gives the scale {whole:g}, expected a finite one")
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                scales = scales / whole
        if not np.isfinite(scales).all():
            part.refuse(f"gives the scale {scales[~np.isfinite(scales)].flat[0]:g}, expected finite ones")
        return scales


def grid_of(
    part: Part, leading: tuple[int, ...], rows: int, columns: int, block: tuple[int, int] | None
) -> tuple[GridRows, int]:
    """Returns the scales of matrices [*leading, rows, columns], and the columns that share one.

    Args:
        part: stored scales.
        leading: dimensions above the matrices.
        rows: rows of a matrix.
        columns: columns of a matrix.
        block: rows and columns that share a scale; if None, a single scale is the tensor's and others are rows'.

    Raises:
        CheckpointError: the scales have another shape.
    """
    count = math.prod(leading)
    if block is not None:
        height, width = min(block[0], rows), min(block[1], columns)
        grid = -(-rows // height), -(-columns // width)
        part.of_shape((*leading, *grid))
        return GridRows(part, (count * grid[0], grid[1]), rows=rows, block=height), width
    if part.shape in ((), (1,), (1, 1)):
        return GridRows(part, (1, 1), rows=count * rows, block=count * rows), columns
    part.of_shape((*leading, rows, 1), (*leading, rows), ())
    return GridRows(part, (count * rows, 1)), columns


def group_order(part: Part, groups: int, size: int) -> np.ndarray[Any, Any] | None:
    """Returns the number of the group of each column, i64 [K]; None if groups of ``size`` follow each other.

    Raises:
        CheckpointError: a number is not that of a group.
    """
    order = part.read().astype(np.int64)
    if order.min(initial=0) < 0 or order.max(initial=0) >= groups:
        part.refuse(f"has numbers {order.min()} to {order.max()}, expected those of {groups} groups from 0 on")
    return None if np.array_equal(order, np.arange(len(order)) // size) else order
