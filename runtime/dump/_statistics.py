"""Statistics of a tensor, computed chunk by chunk."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from lang_core import DType, as_dtype, bf16, f16

Array = np.ndarray[Any, Any]

# Elements per chunk: a chunk stays in the second-level cache while min, max and sum go over it.
CHUNK: Final = 1 << 16

# Every f16 by its bits: a look-up is twice as fast as NumPy's conversion.
_F16: Final = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of one tensor; min, max and mean are over its finite elements, and None if it has none.

    Attributes:
        min: least element; an integer for integers and booleans (False is 0).
        max: greatest element.
        mean: arithmetic mean, summed in f64.
        nan: number of elements that are NaN.
        inf: number of elements that are infinite.
    """

    min: float | int | None
    max: float | int | None
    mean: float | None
    nan: int
    inf: int


def statistics(array: Array) -> Statistics:
    """Returns the statistics of an array of any dtype of the table and any strides.

    >>> statistics(np.array([1, np.nan, 3, -np.inf], np.float32))
    Statistics(min=1.0, max=3.0, mean=2.0, nan=1, inf=1)
    """
    running = RunningStatistics(as_dtype(array.dtype))
    for chunk in chunks(stored(array)):
        running.add(chunk)
    return running.result()


def stored(array: Array) -> Array:
    """Returns the array in a dtype that NumPy's files can hold: bf16 as the u16 of the same bits."""
    return array.view(np.uint16) if array.dtype == bf16.numpy else array


def chunks(array: Array) -> Iterator[Array]:
    """Yields the elements in row-major order, in contiguous pieces of up to ``CHUNK``, without a copy of the whole."""
    if array.flags.c_contiguous:
        flat = array.reshape(-1)
        for begin in range(0, flat.size, CHUNK):
            yield flat[begin : begin + CHUNK]
    elif array.size:
        yield from np.nditer(array, ["external_loop", "buffered"], order="C", buffersize=CHUNK)  # pyright: ignore[reportReturnType] - arrays, for there is one operand


class RunningStatistics:
    """Statistics of a tensor, computed from its chunks in the form of ``stored``, one after the other."""

    def __init__(self, dtype: DType) -> None:
        self._dtype = dtype
        self._wide = np.empty(CHUNK if dtype in (bf16, f16) else 0, np.float32)
        self._min: Any = None
        self._max: Any = None
        self._mean = 0.0
        self._count = self._nan = self._inf = 0

    def add(self, chunk: Array) -> None:
        """Adds a chunk of at most ``CHUNK`` elements."""
        chunk = self._widened(chunk)
        low, high = chunk.min(), chunk.max()
        if self._dtype.is_floating and not (np.isfinite(low) and np.isfinite(high)):  # NaN and infinity show in these
            chunk = self._finite(chunk)
            if not chunk.size:
                return
            low, high = chunk.min(), chunk.max()
        self._min = low if self._min is None else min(low, self._min)
        self._max = high if self._max is None else max(high, self._max)
        with np.errstate(over="ignore", invalid="ignore"):
            total = float(chunk.sum(dtype=np.float64))
            mean = total / chunk.size if np.isfinite(total) else float((chunk / chunk.size).sum())
        self._count += chunk.size
        self._mean = self._mean * (1 - chunk.size / self._count) + mean * (chunk.size / self._count)

    def _widened(self, chunk: Array) -> Array:
        """Returns 16-bit floats as f32, in a reused buffer: NumPy's own arithmetic on them is slow."""
        wide = self._wide[: chunk.size]
        if self._dtype is bf16:
            np.left_shift(chunk, np.uint32(16), out=wide.view(np.uint32), dtype=np.uint32)
            return wide
        if self._dtype is f16:
            np.take(_F16, chunk.view(np.uint16), out=wide, mode="clip")  # with another mode it makes a copy first
            return wide
        return chunk

    def _finite(self, chunk: Array) -> Array:
        finite = np.isfinite(chunk)
        nan = int(np.isnan(chunk).sum())
        self._nan += nan
        self._inf += chunk.size - int(finite.sum()) - nan
        return chunk[finite]

    def result(self) -> Statistics:
        """Returns the statistics of all chunks so far."""
        number = float if self._dtype.is_floating else int
        if self._min is None:
            return Statistics(None, None, None, self._nan, self._inf)
        return Statistics(number(self._min), number(self._max), self._mean, self._nan, self._inf)
