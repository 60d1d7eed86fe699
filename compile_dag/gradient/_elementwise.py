"""Gradients of elementwise ops. Broadcasting and promotion are undone by the caller."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from compile_dag.gradient._rules import ForwardCall, Thunk, gradient_of, not_differentiable
from lang_core import Ops, Tensor

not_differentiable(
    "a comparison gives bool",
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
)
not_differentiable("logic is of bool", "logical_and", "logical_or", "logical_xor", "logical_not")
not_differentiable("of integers", "quotient")
not_differentiable(
    "bits are of integers", "bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right_logical"
)
not_differentiable("a step function: its derivative is 0 wherever it has one", "sign", "floor", "ceil", "round")

# The gradient from the ops, the cotangent g, the operand x and the result y; all in f32 at least.
_UNARY: Final[dict[str, Callable[[Ops, Tensor, Tensor, Tensor], Tensor]]] = {
    "negate": lambda o, g, x, y: o.negate(g),
    "abs": lambda o, g, x, y: o.mul(g, o.sign(x)),
    "exp": lambda o, g, x, y: o.mul(g, y),
    "expm1": lambda o, g, x, y: o.mul(g, o.add(y, 1.0)),
    "log": lambda o, g, x, y: o.div(g, x),
    "log1p": lambda o, g, x, y: o.div(g, o.add(x, 1.0)),
    # (1 + y)(1 - y) keeps what 1 - y^2 loses near +-1.
    "tanh": lambda o, g, x, y: o.mul(o.mul(g, o.add(y, 1.0)), o.sub(1.0, y)),
    "logistic": lambda o, g, x, y: o.mul(o.mul(g, y), o.logistic(o.negate(x))),
    "erf": lambda o, g, x, y: o.mul(g, o.mul(o.exp(o.negate(o.mul(x, x))), 2 / math.sqrt(math.pi))),
    "sqrt": lambda o, g, x, y: o.div(o.mul(g, 0.5), y),
    "rsqrt": lambda o, g, x, y: o.mul(g, o.mul(o.div(y, x), -0.5)),
    "sin": lambda o, g, x, y: o.mul(g, o.cos(x)),
    "cos": lambda o, g, x, y: o.negate(o.mul(g, o.sin(x))),
}


def _unary_rule(formula: Callable[[Ops, Tensor, Tensor, Tensor], Tensor]) -> Any:
    def rule(forward: ForwardCall, cotangent: Tensor) -> Sequence[Thunk]:
        return (lambda: formula(forward.ops, *forward.wide(cotangent, forward.inputs[0], forward.results[0])),)

    return rule


for _name, _formula in _UNARY.items():
    gradient_of(_name)(_unary_rule(_formula))


@gradient_of("add")
def _add(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    return lambda: g, lambda: g


@gradient_of("sub")
def _sub(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    return lambda: g, lambda: forward.ops.negate(g)


@gradient_of("mul")
def _mul(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    x, y = forward.inputs
    return lambda: forward.ops.mul(g, y), lambda: forward.ops.mul(g, x)


@gradient_of("div")
def _div(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    ops = forward.ops
    g, x, y = forward.wide(g, *forward.inputs)
    return lambda: ops.div(g, y), lambda: ops.negate(ops.mul(g, ops.div(ops.div(x, y), y)))


@gradient_of("rem")
def _rem(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    """Differentiates x - y trunc(x / y): the quotient's whole part is a step function."""
    ops = forward.ops

    def of_y() -> Tensor:
        wide, x, y = forward.wide(g, *forward.inputs)
        quotient = ops.div(x, y)
        whole = ops.mul(ops.sign(quotient), ops.floor(ops.abs(quotient)))
        return ops.negate(ops.mul(wide, whole))

    return lambda: g, of_y


@gradient_of("pow")
def _pow(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    ops = forward.ops
    g, x, y, result = forward.wide(g, *forward.inputs, *forward.results)

    def of_x() -> Tensor:  # y = 0 has no slope, and 0 to the power -1 must not make a NaN of it
        flat = ops.equal(y, 0.0)
        slope = ops.mul(y, ops.pow(x, ops.select(flat, 1.0, ops.sub(y, 1.0))))
        return ops.mul(g, ops.select(flat, 0.0, slope))

    def of_y() -> Tensor:  # at x = 0 the result is 0 for y > 0, and its logarithm must not make a NaN of that
        log = ops.log(ops.select(ops.equal(x, 0.0), 1.0, x))
        return ops.mul(g, ops.mul(log, result))

    return of_x, of_y


def _chosen(forward: ForwardCall, g: Tensor, first_wins: Tensor) -> Sequence[Thunk]:
    """Gives the gradient to the operand that was chosen, half to each if they are equal."""
    ops = forward.ops
    x, y = forward.inputs
    share = ops.select(ops.equal(x, y), ops.mul(g, 0.5), g)
    second_loses = ops.logical_and(first_wins, ops.not_equal(x, y))
    return lambda: ops.select(ops.logical_or(first_wins, ops.equal(x, y)), share, 0.0), lambda: ops.select(
        second_loses, 0.0, share
    )


@gradient_of("maximum")
def _maximum(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    return _chosen(forward, g, forward.ops.greater(*forward.inputs))


@gradient_of("minimum")
def _minimum(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    return _chosen(forward, g, forward.ops.less(*forward.inputs))


@gradient_of("select")
def _select(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    pred = forward.inputs[0]
    return None, lambda: forward.ops.select(pred, g, 0.0), lambda: forward.ops.select(pred, 0.0, g)


@gradient_of("clamp")
def _clamp(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    """Gives the gradient 0 on a bound, as jax.lax.clamp does."""
    ops = forward.ops
    x, low, high = forward.inputs

    def where(pred: Callable[[], Tensor]) -> Thunk:
        return lambda: ops.select(pred(), g, 0.0)

    return (
        where(lambda: ops.logical_and(ops.greater(x, low), ops.less(x, high))),
        where(lambda: ops.logical_and(ops.less(x, low), ops.less(low, high))),
        where(lambda: ops.greater(ops.maximum(x, low), high)),
    )


@gradient_of("cast")
def _cast(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    return (lambda: g,)
