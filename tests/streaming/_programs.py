"""Random programs with blocks, for tests of streaming."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from lang_core import Argument, EntryPoint, Parameter, TensorSpec

SPEC = TensorSpec((2, 3), "f32")
INPUTS = ("x", "y")

# A step is (kind, numbers): the numbers choose operands among the values made so far.
Step = tuple[str, tuple[int, ...], list[Any]]

_LEAVES = st.sampled_from(
    [
        "add",
        "exp",
        "mul_constant",
        "constant",
        "parameter",
        "while",
        "cond",
        "sum",
        "split",
        "tag",
        "tagged_while",
        "update",
    ]
)
_NUMBERS = st.tuples(st.integers(0, 999), st.integers(0, 999))


_LEAF_LISTS = st.lists(st.tuples(_LEAVES, _NUMBERS, st.just([])), max_size=7)


def programs() -> st.SearchStrategy[list[Step]]:
    """Lists of steps; a ``block`` step has steps of its own."""
    return st.recursive(
        _LEAF_LISTS,
        lambda inner: st.lists(
            st.one_of(st.tuples(_LEAVES, _NUMBERS, st.just([])), st.tuples(st.just("block"), _NUMBERS, inner)),
            max_size=6,
        ),
        max_leaves=12,
    )


def entry_point(steps: list[Step], outputs: list[int]) -> EntryPoint:
    """A function of two inputs that does the steps and returns some of the values made."""

    def fn(ctx: Any, *inputs: Any) -> dict[str, Any]:
        values = list(inputs)
        run(ctx, steps, values)
        return {f"out{i}": values[number % len(values)] for i, number in enumerate(outputs)}

    return EntryPoint("main", fn, tuple(Argument(name, SPEC) for name in INPUTS))


def run(ctx: Any, steps: list[Step], values: list[Any]) -> None:
    for kind, (a, b), inner in steps:
        if kind == "block":
            with ctx.block(f"block{a % 3}"):
                run(ctx, inner, values)
        else:
            x, y = values[a % len(values)], values[b % len(values)]
            values.extend(_KINDS[kind](ctx, x, y, a))


def _parameter(ctx: Any, x: Any, y: Any, number: int) -> list[Any]:
    parameter = Parameter(SPEC.shape)
    parameter._name = f"weight{number % 4}"  # as a module would name it
    return [ctx.ops.add(x, ctx.parameter(parameter)), ctx.parameter(parameter)]


def _while(ctx: Any, x: Any, y: Any, number: int) -> list[Any]:
    ops = ctx.ops
    return [ops.fori_loop(number % 3, lambda i, v: (ops.add(v, y),), (x,))[0]]


def _tagged_while(ctx: Any, x: Any, y: Any, number: int) -> list[Any]:
    def body(i: Any, v: Any) -> tuple[Any]:
        return (ctx.tag(ctx.ops.add(v, y), f"round{number % 3}"),)

    return [ctx.ops.fori_loop(2, body, (x,))[0]]


def _cond(ctx: Any, x: Any, y: Any, number: int) -> list[Any]:
    ops = ctx.ops
    return list(ops.cond(ops.less(ops.sum(x), float(number)), lambda: (ops.exp(y),), lambda: (ops.negate(x),)))


def _split(ctx: Any, x: Any, y: Any, number: int) -> list[Any]:
    left, right = ctx.ops.split(x, (1, 2), 1)
    return [ctx.ops.concat((right, left), 1)]


def _update(ctx: Any, x: Any, y: Any, number: int) -> list[Any]:
    """Draws an op that may write into its operand: an update, of a reshaped value, in a loop, or a sort."""
    ops = ctx.ops
    row = ops.slice(y, (0, 0), (1, 3))
    kinds: list[Callable[[], Any]] = [
        lambda: ops.dynamic_update_slice(x, row, [1, 0]),
        lambda: ops.reshape(
            ops.dynamic_update_slice(ops.reshape(x, (2, 1, 3)), ops.reshape(row, (1, 1, 3)), [1, 0, 0]), SPEC.shape
        ),
        lambda: ops.fori_loop(2, lambda i, v: (ops.dynamic_update_slice(v, row, [i, 0]),), (x,))[0],
        lambda: ops.scatter(x, ops.full((1, 3), 1, "i32"), row, 0, "add"),
        lambda: ops.put(x, ops.full((2, 1), 1, "i32"), ops.slice(y, (0, 1), (2, 2)), 1),
        lambda: ops.sort(x, 1)[0],
    ]
    return [kinds[number % len(kinds)]()]


_KINDS: dict[str, Callable[[Any, Any, Any, int], list[Any]]] = {
    "add": lambda ctx, x, y, n: [ctx.ops.add(x, y)],
    "exp": lambda ctx, x, y, n: [ctx.ops.exp(x)],
    "mul_constant": lambda ctx, x, y, n: [ctx.ops.mul(x, float(n % 4))],
    "constant": lambda ctx, x, y, n: [ctx.ops.full(SPEC.shape, float(n % 3), "f32")],
    "parameter": _parameter,
    "while": _while,
    "cond": _cond,
    "sum": lambda ctx, x, y, n: [ctx.ops.broadcast(ctx.ops.sum(x, 0, keepdims=True), SPEC.shape)],
    "split": _split,
    "tag": lambda ctx, x, y, n: [ctx.tag(x, f"tag{n % 5}")],
    "tagged_while": _tagged_while,
    "update": _update,
}
