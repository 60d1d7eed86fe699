"""The values that ops take and give."""

from typing import Any, NoReturn

import numpy as np

from lang_core._dtypes import DType
from lang_core._errors import OpError, TraceEscapeError
from lang_core._spec import TensorSpec


class Tensor:
    """A value with a known spec. Whether it has data depends on the context that made it."""

    __slots__ = ("spec",)

    spec: TensorSpec

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions."""
        return self.spec.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.spec.dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.spec.shape)

    def numpy(self) -> np.ndarray[Any, Any]:
        """The data, where the tensor has data."""
        self._escape("numpy()")

    def _escape(self, asked: str) -> NoReturn:
        raise TraceEscapeError(f"{asked} was asked of {self.spec!r}, a value without data")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        data = self.numpy() if dtype is None else self.numpy().astype(dtype)
        return data.copy() if copy else data

    def __bool__(self) -> bool:
        return bool(self._item("bool()"))

    def __int__(self) -> int:
        return int(self._item("int()"))

    def __index__(self) -> int:
        return int(self._item("an index"))

    def __float__(self) -> float:
        return float(self._item("float()"))

    def __eq__(self, other: object) -> NoReturn:
        raise OpError(f"== between tensors ({self.spec!r}) is an op: use ctx.ops.equal, or `is` for the same object")

    __hash__ = object.__hash__

    def __iter__(self) -> NoReturn:
        raise OpError(f"a tensor ({self.spec!r}) is no Python sequence: use ctx.ops.split or ctx.ops.slice")

    def _item(self, asked: str) -> Any:
        if self.spec.size != 1:
            raise OpError(f"{asked} needs a tensor of one element, found {self.spec!r}")
        return self.numpy().reshape(())[()]


class EagerTensor(Tensor):
    """A tensor with data: a NumPy array of exactly the spec's shape and dtype."""

    __slots__ = ("data",)

    def __init__(self, spec: TensorSpec, data: np.ndarray[Any, Any]) -> None:
        self.spec = spec
        self.data = data

    def numpy(self) -> np.ndarray[Any, Any]:
        """The data itself, not a copy."""
        return self.data

    def __repr__(self) -> str:
        return f"EagerTensor({self.spec!r}, {self.data!r})"
