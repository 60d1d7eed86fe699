"""Specs: shape and dtype of a tensor, without its data."""

import math
from operator import index
from typing import NamedTuple

from lang_core._dtypes import DType, as_dtype
from lang_core._errors import OpError


class _Fields(NamedTuple):
    shape: tuple[int, ...]
    dtype: DType


class TensorSpec(_Fields):
    """Shape and dtype: hashable, comparable, cheap.

    >>> TensorSpec((2, 3), "f32")
    f32[2,3]
    """

    __slots__ = ()

    def __new__(cls, shape: tuple[int, ...], dtype: DType | str) -> "TensorSpec":
        try:
            dims = tuple(map(index, shape))
        except TypeError:
            raise OpError(f"a shape is a sequence of integers, found {shape!r}") from None
        if dims and min(dims) < 0:
            raise OpError(f"a tensor's dimensions are 0 or more, found shape {dims}")
        return tuple.__new__(cls, (dims, as_dtype(dtype)))

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Number of bytes of the data."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"
