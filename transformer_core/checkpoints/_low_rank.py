"""Rows of a tensor as adapters change them."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import numpy as np

from lang_core import WeightSource

_ELEMENTS_AT_ONCE: Final = 1 << 20
# Rows of a product that are computed together, always the same ones: so each row has the same bits, however many rows
# are asked for.
_BLOCK: Final = 64

ReadRows = Callable[[int, int], np.ndarray]
"""Reads rows of the unchanged tensor in f32."""


class Change(Protocol):
    """Change of a tensor by one adapter, row by row."""

    def apply(self, rows: np.ndarray, start: int, base: ReadRows) -> None:
        """Changes rows in place.

        Args:
            rows: f32 rows [n, ..] as earlier changes left them.
            start: index of the first.
            base: reads the unchanged tensor.
        """
        ...


class LowRank:
    """``W + scale * left @ right``, a few rows of it at a time.

    Args:
        source: tensors of the adapter.
        left: key of ``left``: [rows, r], or [r, rows] if columns are stored.
        right: key of ``right``: [r, columns], or [columns, r].
        scale: factor of the product.
        turned: True if both are stored transposed.
    """

    def __init__(self, source: WeightSource, left: str, right: str, scale: float, *, turned: bool) -> None:
        self._source: Final = source
        self._left: Final = left
        self._right: Final = right
        self._scale: Final = np.float32(scale)
        self._turned: Final = turned

    def apply(self, rows: np.ndarray, start: int, base: ReadRows) -> None:
        """Adds the product to rows."""
        del base
        left, right = (self._read(key) for key in (self._left, self._right))
        stop = start + len(rows)
        for begin in range(start - start % _BLOCK, stop, _BLOCK):
            product = (left[begin : begin + _BLOCK].astype(np.float32) @ right) * self._scale
            first, last = max(start, begin), min(stop, begin + _BLOCK)
            rows[first - start : last - start] += product[first - begin : last - begin]

    def _read(self, key: str) -> np.ndarray:
        array = self._source.read(key)
        array = array.T if self._turned else array
        return array.astype(np.float32) if key == self._right else array


class Decomposed:
    """``m * V / ||V||`` with ``V`` a sum of a weight and a low-rank product (DoRA); norms of the weight before changes.

    Args:
        source: tensors of the adapter.
        magnitude: key of ``m``: one number per output.
        product: low-rank change.
        rows: number of rows of the weight.
        by_column: True if an output is a column of the weight.
    """

    def __init__(self, source: WeightSource, magnitude: str, product: LowRank, rows: int, *, by_column: bool) -> None:
        self._source: Final = source
        self._magnitude: Final = magnitude
        self._product: Final = product
        self._rows: Final = rows
        self._by_column: Final = by_column
        self._column_norms: np.ndarray | None = None

    def apply(self, rows: np.ndarray, start: int, base: ReadRows) -> None:
        """Adds the product to rows and scales each output to its magnitude."""
        magnitude = self._source.read(self._magnitude).astype(np.float32).reshape(-1)
        if self._by_column:
            factors = magnitude / self._norms_of_columns(base, rows.shape[1])
        else:
            changed = base(start, start + len(rows))
            self._product.apply(changed, start, base)
            norms = np.sqrt(np.einsum("ij,ij->i", changed, changed, dtype=np.float32))
            factors = (magnitude[start : start + len(rows)] / norms)[:, np.newaxis]
        self._product.apply(rows, start, base)
        rows *= factors

    def _norms_of_columns(self, base: ReadRows, columns: int) -> np.ndarray:
        """Returns the norms, for which the whole weight is read once, a few rows at a time."""
        if self._column_norms is None:
            squares, step = np.zeros(columns, np.float64), max(1, _ELEMENTS_AT_ONCE // max(1, columns))
            for first in range(0, self._rows, step):
                changed = base(first, min(self._rows, first + step))
                self._product.apply(changed, first, base)
                squares += np.einsum("ij,ij->j", changed, changed, dtype=np.float64)
            self._column_norms = np.sqrt(squares).astype(np.float32)
        return self._column_norms


class Sum:
    """A vector plus another one times a factor.

    Args:
        source: tensors of the adapter.
        key: key of the vector that is added.
        scale: its factor.
    """

    def __init__(self, source: WeightSource, key: str, scale: float) -> None:
        self._source: Final = source
        self._key: Final = key
        self._scale: Final = np.float32(scale)

    def apply(self, rows: np.ndarray, start: int, base: ReadRows) -> None:
        """Adds to rows."""
        del base
        rows += self._source.read_rows(self._key, start, start + len(rows)).astype(np.float32) * self._scale


class Replacement:
    """Another tensor of the same shape.

    Args:
        source: tensors of the adapter.
        key: key of the tensor.
    """

    def __init__(self, source: WeightSource, key: str) -> None:
        self._source: Final = source
        self._key: Final = key

    def apply(self, rows: np.ndarray, start: int, base: ReadRows) -> None:
        """Overwrites rows."""
        del base
        rows[...] = self._source.read_rows(self._key, start, start + len(rows))

    def read(self) -> np.ndarray:
        """Reads the whole tensor."""
        return self._source.read(self._key)


class SomeRows:
    """Other values of some rows, such as those of tokens.

    Args:
        source: tensors of the adapter.
        key: key of the rows.
        numbers: number of each row in the tensor.
    """

    def __init__(self, source: WeightSource, key: str, numbers: Sequence[int]) -> None:
        self._source: Final = source
        self._key: Final = key
        self._numbers: Final = np.asarray(numbers, np.int64)

    def apply(self, rows: np.ndarray, start: int, base: ReadRows) -> None:
        """Overwrites those of the rows that are among them."""
        del base
        inside = (self._numbers >= start) & (self._numbers < start + len(rows))
        if inside.any():
            rows[self._numbers[inside] - start] = self._source.read(self._key)[inside]
