"""Base of every part of ``ctx.ops``."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np

from lang_core._dtypes import DType, as_dtype, bool_, f64, i64, promote
from lang_core._errors import OpError
from lang_core._operands import operand_advice
from lang_core._parameter import Named
from lang_core._spec import TensorSpec
from lang_core._tensor import Tensor
from lang_core.ops._op import Op

# A Python number (not a NumPy scalar, which is data) may stand for a tensor of rank 0.
Operand = Tensor | np.ndarray[Any, Any] | bool | int | float
"""Operand of an op: a Python number (not a NumPy scalar, which is data) may stand for a tensor of rank 0."""
NUMBERS = (bool, int, float)
R = TypeVar("R")


class Interpreter(Protocol):
    """Part of an execution context that ops call."""

    def apply(self, op: Op, inputs: tuple[Any, ...], attributes: tuple[Any, ...] = ()) -> tuple[Tensor, ...]:
        """Gives the op its meaning: computes, or records."""
        ...

    def constant(self, value: Any, dtype: DType | str | None = None) -> Tensor:
        """Returns a tensor of values that are known now."""
        ...

    def number(self, number: Any, dtype: DType) -> Tensor:
        """Returns a rank-0 constant of a Python number."""
        ...

    def placeholder(self, name: str, spec: TensorSpec) -> Tensor:
        """Returns a named input."""
        ...

    def while_loop(self, cond: Any, body: Any, init: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Computes or records the loop of ops.while_loop."""
        ...

    def conditional(self, pred: Tensor, on_true: Any, on_false: Any, operands: Any) -> tuple[Tensor, ...]:
        """Computes or records the branch of ops.cond."""
        ...

    def composite(
        self, name: str, body: Callable[..., R], inputs: tuple[Any, ...], attributes: tuple[Any, ...] = ()
    ) -> R:
        """Computes or records ops that belong together."""
        ...


def number_dtype(number: bool | int | float, beside: DType) -> DType:
    """Returns the dtype of a Python number beside a tensor, by NumPy's rule for weak scalars (NEP 50).

    >>> from lang_core._dtypes import f16, i32
    >>> number_dtype(2, beside=f16), number_dtype(2, beside=i32), number_dtype(0.5, beside=i32)
    (f16, i32, f64)
    """
    if isinstance(number, bool):
        return bool_
    if isinstance(number, int):
        return i64 if beside is bool_ else beside
    return beside if beside.is_floating else f64


class OpsBase:
    """Holds the context that gives the ops their meaning."""

    __slots__ = ("_ctx",)

    def __init__(self, ctx: Interpreter) -> None:
        self._ctx = ctx

    def _apply(self, op: Op, inputs: tuple[Any, ...], attributes: tuple[Any, ...] = ()) -> Tensor:
        return self._ctx.apply(op, inputs, attributes)[0]

    def _tensors(self, op: Op, operands: tuple[Operand, ...]) -> tuple[Any, ...]:
        """Turns Python numbers among the operands into constants of the dtype they take beside the others."""
        if not any(type(operand) in NUMBERS for operand in operands):
            return operands
        dtype = None
        for operand in operands:
            if isinstance(operand, Tensor | np.ndarray | np.generic):
                known = as_dtype(operand.dtype)
                # Where none is common the op's own contract says so.
                dtype = (promote(dtype, known) or dtype) if dtype else known
        if dtype is None:
            for operand in operands:
                if isinstance(operand, Named):
                    raise OpError(f"{op.name}: {operand_advice(operand)}")
            raise OpError(f"{op.name}: at least one operand must be a tensor, found {operands}: use ctx.ops.constant")
        return tuple(
            self._ctx.number(operand, number_dtype(operand, dtype)) if type(operand) in NUMBERS else operand  # pyright: ignore[reportArgumentType]
            for operand in operands
        )
