"""Values that stages hand on, and ops on them."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import numpy as np

from lang_core import (
    ConfigError,
    DType,
    ExecutionContext,
    NoOperators,
    OperatorError,
    OpError,
    Ops,
    Tensor,
    TensorSpec,
    TraceEscapeError,
    as_dtype,
    near_keywords,
    near_names,
)

Dim = int | str
"""A size, or an axis letter; a letter has the size of the first tensor that has it."""

_OP_NAMES: Final = tuple(name for name, _ in inspect.getmembers(Ops, callable) if not name.startswith("_"))


@dataclass(frozen=True, slots=True)
class FlowValue(NoOperators):
    """A tensor and the spec that its maker declares for it.

    Attributes:
        tensor: tensor of the running context.
        spec: declared spec; compared with the tensor's when the value is passed on.
    """

    tensor: Tensor
    spec: TensorSpec

    @classmethod
    def of(cls, tensor: Tensor) -> "FlowValue":
        """Wraps a tensor of any shape under its own spec."""
        return cls(tensor, tensor.spec)

    def _as_operand(self) -> tuple[str, str]:
        return f"a flow value ({self.spec!r})", "emit the op, as in flow.emit('mul', x, 2.0), or on x.tensor "

    def __bool__(self) -> NoReturn:
        raise OperatorError(f"bool() is not defined for a flow value ({self.spec!r}): compare it with None by `is`")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
        raise OperatorError(f"a flow value ({self.spec!r}) is no array: use its tensor, x.tensor, with ops of flow.ctx")

    @property
    def shape(self) -> tuple[int, ...]:
        """The declared dimensions."""
        return self.spec.shape

    @property
    def dtype(self) -> DType:
        """The declared element type."""
        return self.spec.dtype


@dataclass(frozen=True, slots=True)
class InputSpec:
    """An input of a model: its name, its shape in sizes and letters, its dtype."""

    name: str
    dims: tuple[Dim, ...]
    dtype: DType

    def spec(self, sizes: Mapping[str, int]) -> TensorSpec:
        """Returns the spec at the sizes of the letters.

        Raises:
            OpError: a letter lacks a size.
        """
        for dim in self.dims:
            if isinstance(dim, str) and dim not in sizes:
                raise OpError(
                    f"input {self.name!r}: axis {dim!r} has no size: the letters of a profile are {', '.join(sizes)}"
                )
        return TensorSpec(tuple(sizes[dim] if isinstance(dim, str) else dim for dim in self.dims), self.dtype)


def declared(
    name: str, shape: Sequence[Dim] | TensorSpec, dtype: DType | str | None
) -> tuple[tuple[Dim, ...], DType | None]:
    """Returns the dimensions and the dtype of an input, None for the profile's.

    Raises:
        ConfigError: the dtype is unknown.
    """
    if isinstance(shape, TensorSpec):
        return shape.shape, shape.dtype
    try:
        return tuple(shape), None if dtype is None else as_dtype(dtype)
    except OpError as error:
        raise ConfigError(f"input {name!r}: {error}") from None


def checked(value: object, maker: str) -> FlowValue:
    """Returns a value that ``maker`` handed on, after comparing its spec with its tensor's.

    Raises:
        OpError: it is not a ``FlowValue``, or its tensor has another spec.
    """
    if not isinstance(value, FlowValue):
        kind = f"a {type(value).__name__}"
        raise OpError(f"{maker}: expected a FlowValue; found {kind}: return FlowValue.of(tensor) or flow.value(..)")
    if not isinstance(value.tensor, Tensor):
        kind = f"a {type(value.tensor).__name__}"
        raise OpError(f"{maker}: expected a FlowValue of a tensor; found one of {kind}: make it by ops of flow.ctx")
    if value.tensor.spec != value.spec:
        raise OpError(
            f"{maker}: the value is declared as {value.spec!r}, and its tensor is {value.tensor.spec!r}: "
            "correct the spec or the ops"
        )
    return value


def checked_shape(shape: Any, asked: str) -> tuple[int, ...]:
    """Returns a shape that a caller gave, as a tuple of integers.

    Raises:
        ConfigError: it is not a sequence of integers of at least 0.
    """
    dims = tuple(shape) if isinstance(shape, Sequence) and not isinstance(shape, str | bytes) else None
    plain = dims is not None and not any(isinstance(dim, bool | np.bool_) for dim in dims)
    if dims is None or not plain or not all(isinstance(dim, int | np.integer) and dim >= 0 for dim in dims):
        raise ConfigError(f"{asked}: expected a shape, a sequence of integers of at least 0; found {shape!r}")
    return tuple(map(int, dims))


def as_tensor(ctx: ExecutionContext, name: str, value: Any) -> Tensor:
    """Converts a caller's argument to a tensor of the context; an eager context also takes arrays.

    Raises:
        TraceEscapeError: an array reached a recording.
    """
    if isinstance(value, Tensor):
        return value
    if ctx.isRecording:
        raise TraceEscapeError(
            f"{name}: a {type(value).__name__} reached a recorded flow: make it an input of the recording, or freeze "
            "it with ctx.ops.constant"
        )
    return ctx.constant(value)


def bind(name: str, dims: Sequence[Dim], dtype: DType, actual: TensorSpec, sizes: dict[str, int]) -> None:
    """Compares a tensor's spec with a declared shape; a letter without a size takes the tensor's.

    Raises:
        OpError: rank, dtype or a size differs.
    """
    declared = f"{dtype}[{','.join(map(str, dims))}]"
    if len(dims) != actual.ndim or dtype is not actual.dtype:
        raise OpError(f"{name}: expected {declared}; found {actual!r}")
    for dim, size in zip(dims, actual.shape, strict=True):
        wanted = sizes.setdefault(dim, size) if isinstance(dim, str) else dim
        if wanted != size:
            known = ", ".join(f"{letter} = {value}" for letter, value in sizes.items()) or "no letters"
            raise OpError(f"{name}: expected {declared} with {known}; found {actual!r}")


@near_keywords
class Emit:
    """Calls ops of the op table on flow values and compares their results with a spec.

    Args:
        ctx: context that computes.
    """

    def __init__(self, ctx: ExecutionContext) -> None:
        self._ctx: Final = ctx

    def __call__(self, op: str, *operands: Any, spec: TensorSpec | None = None, **attributes: Any) -> FlowValue:
        """Returns the result of ``ctx.ops.<op>(*operands, **attributes)``.

        Args:
            op: name of a method of ``ctx.ops`` with one result.
            operands: flow values, tensors, numbers, or sequences of these.
            spec: required spec of the result; any if None.
            attributes: the op's attributes.

        Raises:
            OpError: the op is unknown, has several results or another spec, or its own contract is broken.
        """
        results = self.several(op, *operands, **attributes)
        if len(results) != 1:
            raise OpError(f"emit {op!r} at {self._where()}: it has {len(results)} results: call emit.several")
        if spec is not None and results[0].spec != spec:
            raise OpError(f"emit {op!r} at {self._where()}: expected {spec!r}; found {results[0].spec!r}")
        return results[0]

    def several(self, op: str, *operands: Any, **attributes: Any) -> tuple[FlowValue, ...]:
        """Calls an op with any number of results; arguments as for a call of the object."""
        if op not in _OP_NAMES:
            raise OpError(f"emit {op!r} at {self._where()}: no op of this name{near_names(op, _OP_NAMES)}")
        plain = {name: _plain(value) for name, value in attributes.items()}
        results = getattr(self._ctx.ops, op)(*map(_plain, operands), **plain)
        return tuple(map(FlowValue.of, (results,) if isinstance(results, Tensor) else results))

    def _where(self) -> str:
        return self._ctx.module_path or "the root"


def _plain(value: Any) -> Any:
    if isinstance(value, FlowValue):
        return value.tensor
    return type(value)(map(_plain, value)) if type(value) in (list, tuple) else value
