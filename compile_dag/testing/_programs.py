"""Random programs over the op table, which run in any context. Only tests import this.

A program is data: steps of small numbers, each of which picks an op and operands from the values there are by
then. Its choices depend on specs only, so a program computes the same eagerly and recorded.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Final, NamedTuple

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from lang_core import (
    DTYPES,
    EagerExecutionContext,
    ExecutionContext,
    MappingWeights,
    Module,
    Parameter,
    Tensor,
    TensorSpec,
    promote,
)

# A busy machine must not fail a property test, and the same commit must always draw the same examples.
DRAWN: Final = settings(deadline=None, derandomize=True, max_examples=150, database=None)
INPUTS: Final = {"x": TensorSpec((2, 3), "f32"), "y": TensorSpec((3,), "bf16"), "n": TensorSpec((1, 2), "i32")}
_LARGEST: Final = 64


class Program(NamedTuple):
    """Random program: steps of (op, operand, operand, number), and which values are the outputs."""

    steps: tuple[tuple[int, int, int, int], ...]
    outputs: tuple[int, ...]

    def __call__(self, ctx: ExecutionContext, *inputs: Tensor) -> dict[str, Tensor]:
        """Runs the program; the outputs are ``out0``, ``out1``, ..."""
        pool = list(inputs)
        for op, a, b, n in self.steps:
            x, y = pool[a % len(pool)], pool[b % len(pool)]
            with ctx.block(f"block{n % 3}") if n % 4 == 3 else nullcontext():
                results = _STEPS[op % len(_STEPS)](ctx, x, y, n)
            pool += [result for result in results if result.spec.size <= _LARGEST]
        return {f"out{i}": pool[-1 - which % len(pool)] for i, which in enumerate(self.outputs)}


class Weights(Module):
    """Module with two parameters, and a step under its own path."""

    def __init__(self) -> None:
        self.scale = Parameter((3,), "f32")
        self.shift = Parameter((2, 1), "f16")

    def forward(self, ctx: ExecutionContext, x: Tensor, n: int) -> Tensor:
        """Uses one of the parameters."""
        weight = ctx.parameter((self.scale, self.shift)[n % 2])
        return ctx.ops.add(ctx.ops.cast(ctx.ops.sum(weight), x.dtype), x) if x.dtype.is_floating else weight


class Model(Module):
    """Root module, which gives the parameters their paths."""

    def __init__(self) -> None:
        self.inner = Weights()


_STORED: Final = {
    "inner.scale": np.array([1, -0.5, 3], "f4"),
    "inner.shift": np.array([[2], [-7]], "f2"),
}
_MODEL: Final = Model()
_CONSTANTS: Final = (
    np.array([np.nan, -0.0, 1.5], np.float32),
    np.int64(7),
    np.array([[True], [False]]),
    np.array([[0.0]], np.float16),
)


def eager() -> EagerExecutionContext:
    """Returns a context in which programs run."""
    return EagerExecutionContext(weights=MappingWeights(_STORED))


def input_tensors(ctx: ExecutionContext) -> dict[str, Tensor]:
    """Returns data for INPUTS, with values that arithmetic treats specially."""
    x = np.array([[1.0, -0.0, np.inf], [-2.5, np.nan, 0.75]])
    data = {"x": x, "y": np.array([3.0, -0.5, 0.0]), "n": np.array([[5, -3]])}
    return {name: ctx.constant(data[name].astype(spec.dtype.numpy)) for name, spec in INPUTS.items()}


def _floating(ctx: ExecutionContext, x: Tensor) -> Tensor:
    return x if x.dtype.is_floating else ctx.ops.cast(x, "f32")


def _number(ctx: ExecutionContext, x: Tensor) -> Tensor:
    return x if x.dtype.name != "bool" else ctx.ops.cast(x, "u8")


def _fitting(ctx: ExecutionContext, x: Tensor, y: Tensor) -> Tensor:
    """Returns y, or x if the two do not broadcast or promote."""
    pairs = zip(x.shape[::-1], y.shape[::-1], strict=False)
    fits = all(a == b or 1 in (a, b) for a, b in pairs) and promote(x.dtype, y.dtype) is not None
    return y if fits and y.dtype.name != "bool" else x


def _unary(ctx: ExecutionContext, x: Tensor, y: Tensor, n: int) -> Sequence[Tensor]:
    names = ("exp", "tanh", "negate", "sin", "floor", "logistic", "sqrt", "abs", "sign", "erf")
    return (getattr(ctx.ops, names[n % len(names)])(_floating(ctx, x)),)


def _binary(ctx: ExecutionContext, x: Tensor, y: Tensor, n: int) -> Sequence[Tensor]:
    x = _number(ctx, x)
    names = ("add", "mul", "sub", "maximum", "less", "equal", "rem")
    return (getattr(ctx.ops, names[n % len(names)])(x, 3 if n % 2 else _fitting(ctx, x, y)),)


def _select(ctx: ExecutionContext, x: Tensor, y: Tensor, n: int) -> Sequence[Tensor]:
    x = _number(ctx, x)
    return (ctx.ops.select(ctx.ops.greater(x, n), x, _fitting(ctx, x, y)),)


def _reduce(ctx: ExecutionContext, x: Tensor, y: Tensor, n: int) -> Sequence[Tensor]:
    x = _number(ctx, x)
    if x.ndim == 0:
        return (ctx.ops.sum(x),)
    some = (ctx.ops.sum, ctx.ops.max, ctx.ops.argmax, ctx.ops.prod)[n % 4]
    return some(x, n % x.ndim, n % 2 == 1), ctx.ops.cumsum(x, n % x.ndim), *ctx.ops.sort(x, n % x.ndim)


def _move(ctx: ExecutionContext, x: Tensor, y: Tensor, n: int) -> Sequence[Tensor]:
    if x.ndim == 0:
        return (ctx.ops.reshape(x, (1, 1)),)
    flat = ctx.ops.reshape(x, (x.spec.size,))
    return (
        ctx.ops.transpose(x, tuple(range(x.ndim))[::-1]),
        ctx.ops.concat((flat, ctx.ops.reverse(flat, (0,))), 0) if n % 2 else ctx.ops.slice(flat, (n % 2,), (1,)),
        ctx.ops.pad(flat, (n % 3,), (1,)),
    )


def _dot(ctx: ExecutionContext, x: Tensor, y: Tensor, n: int) -> Sequence[Tensor]:
    x = ctx.ops.reshape(_number(ctx, x), (1, -1))
    return (ctx.ops.dot_general(x, x, ((1,), (1,)) if n % 2 else ((0,), (0,))),)


def _make(ctx: ExecutionContext, x: Tensor, y: Tensor, n: int) -> Sequence[Tensor]:
    if n % 3 == 0:
        return (_MODEL.inner(ctx, x, n),)
    return ctx.constant(_CONSTANTS[n % len(_CONSTANTS)]), ctx.ops.iota((2, 3), n % 2, "i32")


def _cast(ctx: ExecutionContext, x: Tensor, y: Tensor, n: int) -> Sequence[Tensor]:
    return (ctx.ops.cast(x, DTYPES[n % len(DTYPES)]),)


def _loop(ctx: ExecutionContext, x: Tensor, y: Tensor, n: int) -> Sequence[Tensor]:
    x, beside = _floating(ctx, x), ctx.ops.sum(_floating(ctx, y))

    def body(i: Tensor, value: Tensor) -> Sequence[Tensor]:
        grown = ctx.ops.add(ctx.ops.mul(value, 0.5), ctx.ops.cast(beside, x.dtype))
        if n % 2:
            return (grown,)
        return ctx.ops.cond(ctx.ops.less(i, 1), lambda v: (v,), lambda v: (ctx.ops.negate(x),), (grown,))

    return ctx.ops.fori_loop(n % 3, body, (x,))


def _branch(ctx: ExecutionContext, x: Tensor, y: Tensor, n: int) -> Sequence[Tensor]:
    pred = ctx.ops.any(ctx.ops.greater(_number(ctx, y), n))
    return ctx.ops.cond(pred, lambda v: (v, y), lambda v: (_scaled(ctx, v), y), (_floating(ctx, x),))


def _scaled(ctx: ExecutionContext, x: Tensor) -> Tensor:
    return ctx.ops.add(x, ctx.ops.cast(_MODEL.inner(ctx, ctx.constant(2.0), 0), x.dtype))


_STEPS: Final[tuple[Callable[..., Sequence[Tensor]], ...]] = (
    *(_unary, _binary, _select, _reduce, _move, _dot, _make, _cast, _loop, _branch),
)
_SMALL: Final = st.integers(0, 99)

PROGRAMS: Final = st.builds(
    Program,
    st.lists(
        st.tuples(st.integers(0, len(_STEPS) - 1), _SMALL, _SMALL, st.integers(0, 35)), min_size=5, max_size=24
    ).map(tuple),
    st.lists(_SMALL, min_size=1, max_size=5).map(tuple),
)


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    """Returns whether two results have the same names in the same order, specs and bits."""
    return list(a) == list(b) and all(
        x.spec == y.spec and x.numpy().dtype == y.numpy().dtype and x.numpy().tobytes() == y.numpy().tobytes()
        for x, y in zip(a.values(), b.values(), strict=True)
    )
