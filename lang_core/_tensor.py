"""Tensors: the values that ops take and give."""

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from lang_core._dtypes import DType
from lang_core._errors import OperatorError, OpError, TraceEscapeError
from lang_core._operators import ARRAY_ATTRIBUTES, MissingAttribute, NoOperators
from lang_core._spec import TensorSpec


class Tensor(NoOperators):
    """Value with a known spec. It has data or not, depending on the context that made it.

    Compute with ``ctx.ops``: Python's operators, and functions of NumPy, raise an OperatorError that names the op.
    """

    __slots__ = ("spec",)

    spec: TensorSpec

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions."""
        return self.spec.shape

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.spec.dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.spec.shape)

    def numpy(self) -> np.ndarray[Any, Any]:
        """Returns the data, of the tensor's shape, if it has data.

        Raises:
            TraceEscapeError: the value is recorded and lacks data.
        """
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
        raise OperatorError(
            f"== between tensors ({self.spec!r}) is an op: use ctx.ops.equal, or `is` for the same object"
        )

    __hash__ = object.__hash__

    def __iter__(self) -> NoReturn:
        raise OperatorError(f"a tensor ({self.spec!r}) is no Python sequence: use ctx.ops.split or ctx.ops.slice")

    if not TYPE_CHECKING:  # a type checker that saw it would take a tensor for a sequence

        def __len__(self) -> int:
            raise OperatorError(f"a tensor ({self.spec!r}) has no len(): use x.shape[0]")

        def __dir__(self) -> list[str]:
            return [name for name in object.__dir__(self) if hasattr(type(self), name)]

    def _as_operand(self) -> tuple[str, str]:
        return f"a tensor ({self.spec!r})", ""

    def _item(self, asked: str) -> Any:
        if self.spec.size != 1:
            raise OpError(f"{asked} needs a tensor of one element, found {self.spec!r}")
        return self.numpy().reshape(())[()]


for _name, _advice in ARRAY_ATTRIBUTES.items():
    setattr(Tensor, _name, MissingAttribute(_name, _advice))


class EagerTensor(Tensor):
    """Tensor with data: a NumPy array of exactly the spec's shape and dtype."""

    __slots__ = ("data",)

    def __init__(self, spec: TensorSpec, data: np.ndarray[Any, Any]) -> None:
        self.spec = spec
        self.data = data

    def numpy(self) -> np.ndarray[Any, Any]:
        """Returns the data itself, of the tensor's shape, not a copy."""
        return self.data

    def __repr__(self) -> str:
        return f"EagerTensor({self.spec!r}, {self.data!r})"
