"""Sources of weights, as all code but a checkpoint's reader sees them."""

import math
from collections.abc import Callable, Iterator
from typing import Protocol, runtime_checkable

import numpy as np

from lang_core._errors import CheckpointError
from lang_core._spec import TensorSpec


@runtime_checkable
class WeightSource(Protocol):
    """Named tensors that are read when asked for, and only then.

    Reading changes nothing: the same key can be read again. Arrays are read-only if they are views. A source that wraps
    another source gives the same answers for tensors that it does not change.
    """

    def keys(self) -> Iterator[str]:
        """Returns the keys, in the order of the source."""
        ...

    def has(self, key: str) -> bool:
        """Returns whether the source has this key."""
        ...

    def spec(self, key: str) -> TensorSpec:
        """Returns the shape and the dtype that reading gives. Raises CheckpointError if the key does not exist."""
        ...

    def encoding(self, key: str) -> str | None:
        """Returns the encoding in which the tensor is stored, e.g. ``"q8_0"``; None if in its spec's dtype."""
        ...

    def read(self, key: str) -> np.ndarray:
        """Returns the whole tensor, of its spec's shape."""
        ...

    def read_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Returns rows ``start`` to ``stop`` of the first axis (a rank-0 tensor is its own only row)."""
        ...

    def origin(self, key: str) -> str:
        """Returns the place of the tensor, for messages: a file's path."""
        ...


@runtime_checkable
class MatrixRows(Protocol):
    """Source with rows so large that callers read parts of them: experts, each of which is a matrix."""

    def read_matrix_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Returns rows ``start`` to ``stop`` of the tensor as a matrix [product of all dims but the last, last dim]."""
        ...


Part = tuple[slice, ...]
"""Part of a tensor: a slice of step 1 per axis."""


@runtime_checkable
class Parts(Protocol):
    """Source that reads a part of a tensor, and nothing of the others."""

    def read_part(self, key: str, part: Part) -> np.ndarray:
        """Returns the part, of the shape that its slices give."""
        ...


@runtime_checkable
class PackedRows(Protocol):
    """Source that gives rows of packed tensors as they are stored."""

    def packed_as(self, key: str) -> str | None:
        """Returns the encoding of the rows that ``read_packed_rows`` gives; None if it cannot read this tensor."""
        ...

    def read_packed_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Returns rows ``start`` to ``stop`` of a packed tensor's first axis: bytes [rows, .., bytes of a row]."""
        ...


@runtime_checkable
class StoredBytes(Protocol):
    """Source that knows the size of its tensors in the form in which they are stored."""

    def stored_bytes(self, key: str) -> int | None:
        """Returns the bytes of a tensor as it is stored, scales included; None if they are not known."""
        ...


def rows_of(array: np.ndarray, start: int, stop: int, key: str, origin: str) -> np.ndarray:
    """Returns rows ``start`` to ``stop`` of the first axis, a view; a rank-0 array is its own only row.

    Args:
        array: the whole tensor.
        start: the first row.
        stop: the row after the last.
        key: the tensor's, for the message.
        origin: location of the tensor, for the message.

    Raises:
        CheckpointError: the tensor lacks these rows.
    """
    check_rows(array.shape, start, stop, key, origin)
    if array.ndim:
        return array[start:stop]
    return array if stop > start else array.reshape(1)[:0]


def part_of(source: WeightSource, key: str, part: Part) -> np.ndarray:
    """Returns a part of a tensor of a source, of the shape that its slices give.

    Of a source that cannot read it alone, the rows of the first axis that it is of are read.

    Args:
        source: of the tensor.
        key: the tensor's.
        part: a slice of step 1 per axis.
    """
    if isinstance(source, Parts):
        return source.read_part(key, part)
    if not part:
        return source.read(key)
    start, stop, _ = part[0].indices(source.spec(key).shape[0])
    return source.read_rows(key, start, stop)[(slice(None), *part[1:])]


def matrix_rows_of(source: WeightSource, key: str, start: int, stop: int) -> np.ndarray:
    """Returns rows ``start`` to ``stop`` of a tensor of a source seen as a matrix: see ``MatrixRows``.

    Of a source that cannot read them alone, the rows of the first axis that they are of are read.

    Args:
        source: of the tensor.
        key: the tensor's; it has two axes or more, none of them of size 0.
        start: the first row.
        stop: the row after the last.
    """
    if isinstance(source, MatrixRows):
        return source.read_matrix_rows(key, start, stop)
    return matrix_rows_by(source.read_rows, key, source.spec(key).shape, start, stop)


def matrix_rows_by(
    read_rows: Callable[[str, int, int], np.ndarray], key: str, shape: tuple[int, ...], start: int, stop: int
) -> np.ndarray:
    """Like ``matrix_rows_of`` for a tensor of this shape, by reading rows of its first axis.

    Args:
        read_rows: function that reads rows of the first axis: key, first row, row after the last.
        key: name of the tensor.
        shape: shape of the tensor.
        start: first row, counted over the matrix of all rows of the tensor.
        stop: row after the last.
    """
    height = math.prod(shape[1:-1])
    first, last = start // height, -(-stop // height)
    rows = read_rows(key, first, last).reshape(-1, shape[-1])
    return rows[start - first * height : stop - first * height]


def check_rows(shape: tuple[int, ...], start: int, stop: int, key: str, origin: str) -> None:
    """Checks that a tensor of this shape has rows ``start`` to ``stop``; raises as ``rows_of`` does.

    Args:
        shape: shape of the tensor.
        start: first row.
        stop: row after the last.
        key: name of the tensor, for the message.
        origin: file of the tensor, for the message.

    Raises:
        CheckpointError: the tensor lacks these rows.
    """
    count = shape[0] if shape else 1
    if not 0 <= start <= stop <= count:
        raise CheckpointError(f"{origin}: rows {start} to {stop} of tensor {key!r} asked, it has {count}")
