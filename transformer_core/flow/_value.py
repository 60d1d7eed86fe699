"""What stages hand on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lang_core import DType, ExecutionContext, OpError, Tensor, TensorSpec, TraceEscapeError

Dim = int | str
"""A size, or an axis letter whose size is that of the first tensor with it."""


@dataclass(frozen=True, slots=True)
class FlowValue:
    """A tensor, and what its maker says it is.

    Attributes:
        tensor: of the context that runs.
        spec: the maker's claim; checked against the tensor where the maker hands it on.
    """

    tensor: Tensor
    spec: TensorSpec

    @classmethod
    def of(cls, tensor: Tensor) -> "FlowValue":
        """A tensor as it is."""
        return cls(tensor, tensor.spec)

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions."""
        return self.spec.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.spec.dtype


def checked(value: object, maker: str) -> FlowValue:
    """A value that ``maker`` handed on, if it is one and its claim is true.

    Raises:
        OpError: it is no ``FlowValue``, or its tensor has another spec.
    """
    if not isinstance(value, FlowValue):
        found = f"a {type(value).__name__}"
        raise OpError(f"{maker}: expected a FlowValue; found {found}: return FlowValue.of(tensor) or flow.value(..)")
    if not isinstance(value.tensor, Tensor):
        found = f"a {type(value.tensor).__name__}"
        raise OpError(f"{maker}: expected a FlowValue of a tensor; found one of {found}: make it by ops of flow.ctx")
    if value.tensor.spec != value.spec:
        raise OpError(
            f"{maker}: the value is said to be {value.spec!r}, and its tensor is {value.tensor.spec!r}: "
            "correct the spec or the ops"
        )
    return value


def as_tensor(ctx: ExecutionContext, name: str, value: Any) -> Tensor:
    """What a caller hands in, as a tensor of the context: an eager one takes arrays, too.

    Raises:
        TraceEscapeError: an array is about to enter a recording unseen.
    """
    if isinstance(value, Tensor):
        return value
    if ctx.isRecording:
        raise TraceEscapeError(
            f"{name}: a {type(value).__name__} reached a recorded flow: make it an input of the recording, or freeze "
            "it with ctx.ops.constant"
        )
    return ctx.constant(value)


def bind(name: str, dims: Sequence[Dim], dtype: DType, found: TensorSpec, sizes: dict[str, int]) -> None:
    """Holds a tensor to a declared shape; a letter that is new takes the tensor's size.

    Raises:
        OpError: rank, dtype or a size is another one.
    """
    declared = f"{dtype}[{','.join(map(str, dims))}]"
    if len(dims) != found.ndim or dtype is not found.dtype:
        raise OpError(f"{name}: expected {declared}; found {found!r}")
    for dim, size in zip(dims, found.shape, strict=True):
        wanted = sizes.setdefault(dim, size) if isinstance(dim, str) else dim
        if wanted != size:
            known = ", ".join(f"{letter} = {value}" for letter, value in sizes.items()) or "no letters"
            raise OpError(f"{name}: expected {declared} with {known}; found {found!r}")


def sized(name: str, dims: Sequence[Dim], dtype: DType, sizes: Mapping[str, int]) -> TensorSpec:
    """The spec of a declared shape, where all letters have a size.

    Raises:
        OpError: a letter has none.
    """
    for dim in dims:
        if isinstance(dim, str) and dim not in sizes:
            raise OpError(f"{name}: axis {dim!r} has no size: the letters of a profile are {', '.join(sizes)}")
    return TensorSpec(tuple(sizes[dim] if isinstance(dim, str) else dim for dim in dims), dtype)
