"""Quantised weights as matrices of small numbers times scales."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np

from lang_core import BLOCK, LAYOUTS
from transformer_core.checkpoints.quantized._integers import are_halves, integer_blocks, smallest_encoding

_Array = np.ndarray[Any, Any]
RowsOf = Callable[[int, int], _Array]
"""Gives rows ``start`` to ``stop`` of a matrix, or what belongs to them."""

_ELEMENTS_AT_ONCE: Final = 1 << 18  # of a matrix that is being unpacked, so that temporary arrays stay small


class QuantizedMatrix(Protocol):
    """Quantised weight [.., K], seen as a matrix [product of all dims but the last, K].

    Attributes:
        kind: name of the format for reports, such as ``"fp8"``.
        shape: shape of the weight.
        parts: stored keys that it is made of.
    """

    @property
    def kind(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def parts(self) -> tuple[str, ...]: ...

    def unpacked(self, start: int, stop: int) -> _Array:
        """Returns rows of the matrix, f32 [stop - start, K]."""
        ...


@runtime_checkable
class PackableMatrix(QuantizedMatrix, Protocol):
    """Matrix [N, K] that an encoding of packed weights may hold exactly."""

    def packed_as(self) -> str | None:
        """Returns the encoding of packed weights that holds exactly these weights; None if none does."""
        ...

    def packed(self, encoding: str, start: int, stop: int) -> _Array:
        """Returns rows of the matrix in that encoding, u8 [stop - start, bytes of a row]."""
        ...


@dataclass(frozen=True, slots=True)
class ScaledMatrix:
    """Matrix of weights (code - zero) * scale, in f32. Implements ``PackableMatrix``.

    Attributes:
        kind: name of the format for reports.
        shape: shape of the weight.
        parts: stored keys.
        codes: reader of the stored numbers, [rows, K].
        scales: reader of the scales, f32 [rows, G].
        group: consecutive columns that share a scale.
        zeros: reader of the zero points, integers [rows, G]; None if they are 0.
        order: number of the group of each column, [K]; None if groups follow each other.
        integers: least and greatest code; None for floating-point codes.
    """

    kind: str
    shape: tuple[int, ...]
    parts: tuple[str, ...]
    codes: RowsOf
    scales: RowsOf
    group: int
    zeros: RowsOf | None = None
    order: _Array | None = None
    integers: tuple[int, int] | None = None

    def unpacked(self, start: int, stop: int) -> _Array:
        """Returns rows of the matrix, f32 [stop - start, K]."""
        weights = np.empty((stop - start, self.shape[-1]), np.float32)
        for first, last in slabs(start, stop, self.shape[-1]):
            slab = weights[first - start : last - start]
            with np.errstate(over="ignore", invalid="ignore"):  # weights are so in the library, too
                np.multiply(self._differences(first, last), self._by_column(self.scales(first, last)), out=slab)
        return weights

    def packed_as(self) -> str | None:
        """Returns the smallest encoding that holds exactly these weights.

        A block of 32 columns has one scale, an f16. So groups must be whole blocks, scales f16s, and the integers, less
        their zero points, in the block's range. All scales and zero points are read.
        """
        columns = self.shape[-1]
        if self.integers is None or self.order is not None or len(self.shape) != 2 or columns % BLOCK:
            return None
        if self.group % BLOCK and self.group < columns:
            return None
        least, most = self._range()
        encoding = smallest_encoding(least, most)
        rows = self.shape[0]
        if encoding is None or not all(are_halves(self.scales(*slab)) for slab in slabs(0, rows, self._groups)):
            return None
        return encoding

    def packed(self, encoding: str, start: int, stop: int) -> _Array:
        """Returns rows of the matrix in that encoding, u8 [stop - start, bytes of a row]."""
        blocks = np.arange(0, self.shape[-1], BLOCK) // self.group
        rows = np.empty((stop - start, len(blocks) * LAYOUTS[encoding].bytes), np.uint8)
        for slab in slabs(start, stop, self.shape[-1]):
            packed = integer_blocks(encoding, self._differences(*slab), self.scales(*slab)[:, blocks])
            rows[slab[0] - start : slab[1] - start] = packed
        return rows

    @property
    def _groups(self) -> int:
        return -(-self.shape[-1] // self.group)

    def _range(self) -> tuple[int, int]:
        """Returns the least and the greatest integer that the weights can have beside their scales."""
        least, most = self.integers or (0, 0)
        if self.zeros is None:
            return least, most
        zeros = [self.zeros(*slab) for slab in slabs(0, self.shape[0], self._groups)]
        low, high = min(int(slab.min()) for slab in zeros), max(int(slab.max()) for slab in zeros)
        return least - high, most - low

    def _differences(self, start: int, stop: int) -> _Array:
        """Returns the codes less their zero points."""
        codes = self.codes(start, stop)
        if self.zeros is None:
            return codes
        return codes.astype(np.int16) - self._by_column(self.zeros(start, stop).astype(np.int16))

    def _by_column(self, values: _Array) -> _Array:
        """Returns the values of groups, [rows, G], for each column: [rows, K], or [rows, 1] if that is enough."""
        if self.order is not None:
            return values[:, self.order]
        return values if values.shape[1] == 1 else np.repeat(values, self.group, axis=1)[:, : self.shape[-1]]


def matrix_height(shape: tuple[int, ...]) -> int:
    """Returns the number of rows of a weight seen as a matrix."""
    return math.prod(shape[:-1])


def slabs(start: int, stop: int, columns: int) -> Iterator[tuple[int, int]]:
    """Yields runs of rows, first and last + 1, that have a bounded number of elements."""
    rows = max(1, _ELEMENTS_AT_ONCE // max(1, columns))
    for first in range(start, stop, rows):
        yield first, min(stop, first + rows)
