"""Programs that do this and that with an argument; only tests import this.

Each is ``body(ctx, x, row, position)`` and returns the result, or results by name.
"""

from collections.abc import Callable
from typing import Any, Final

from lang_core import Argument, EntryPoint, TensorSpec, f32, i32

X, ROW = TensorSpec((4, 6), f32), TensorSpec((1, 6), f32)
Body = Callable[[Any, Any, Any, Any], Any]


def entry_point(body: Body, name: str = "main", **x: Any) -> EntryPoint:
    """Returns an entry point; ``x`` is declared with the given options of ``Argument``."""

    def fn(ctx: Any, *values: Any) -> dict[str, Any]:
        results = body(ctx, *values)
        return results if isinstance(results, dict) else {"y": results}

    arguments = (Argument("x", X, **x), Argument("row", ROW), Argument("position", TensorSpec((), i32), "scalar"))
    return EntryPoint(name, fn, arguments)


def update(ctx: Any, x: Any, row: Any, position: Any) -> Any:
    rank = x.spec.ndim
    row = ctx.ops.reshape(row, (1,) * (rank - 1) + (6,))
    return ctx.ops.dynamic_update_slice(x, row, [position] + [0] * (rank - 1))


def _put(ctx: Any, x: Any, row: Any, position: Any) -> Any:
    rows = ctx.ops.reshape(x, (1, 4, 6))
    rows = ctx.ops.put(rows, ctx.ops.reshape(position, (1, 1)), ctx.ops.reshape(row, (1, 1, 6)), 1)
    return ctx.ops.reshape(rows, (4, 6))


def _cond(ctx: Any, x: Any, position: Any) -> Any:
    return ctx.ops.cond(ctx.ops.less(position, 2), lambda: (x,), lambda: (ctx.ops.negate(x),))[0]


def _in_kernels(ctx: Any, x: Any, row: Any, position: Any) -> Any:
    with ctx.block("a"):
        x = ctx.ops.reshape(x, (4, 1, 6))
        other = ctx.ops.exp(x)
    with ctx.block("b"):
        y = update(ctx, x, row, position)
    return {"y": y, "other": other}


def _loop_swaps(ctx: Any, x: Any, row: Any, position: Any) -> Any:
    """The second carried value is x from the second round on."""
    other = ctx.ops.full((4, 6), 1.0, "f32")
    return ctx.ops.fori_loop(3, lambda i, v, w: (w, update(ctx, v, row, i)), (other, x))[0]


UPDATED: Final[dict[str, Body]] = {
    "directly": update,
    "reshaped": lambda c, x, r, p: update(c, c.ops.reshape(x, (2, 2, 6)), r, p),
    "a dimension of 1 more": lambda c, x, r, p: update(c, c.ops.broadcast(x, (1, 4, 6)), r, p),
    "only dimensions of 1 transposed": lambda c, x, r, p: update(
        c, c.ops.transpose(c.ops.reshape(x, (4, 1, 6)), (1, 0, 2)), r, p
    ),
    "the whole slice": lambda c, x, r, p: update(c, c.ops.slice(x, (0, 0), (4, 6)), r, p),
    "twice": lambda c, x, r, p: update(c, update(c, x, r, p), c.ops.negate(r), 0),
    "scatter": lambda c, x, r, p: c.ops.scatter(x, c.ops.broadcast(p, (1, 6)), r, 0, "add"),
    "put": _put,
    "carried by a loop": lambda c, x, r, p: c.ops.fori_loop(2, lambda i, v: (update(c, v, r, i),), (x,))[0],
    "captured by a loop": lambda c, x, r, p: c.ops.fori_loop(
        2, lambda i, v: (c.ops.add(v, update(c, x, r, i)),), (c.ops.exp(x),)
    )[0],
    "carried, then updated": lambda c, x, r, p: update(
        c, c.ops.fori_loop(2, lambda i, v, w: (v, c.ops.add(w, 1.0)), (x, r))[0], r, p
    ),
    "a later round": _loop_swaps,
    "one branch": lambda c, x, r, p: c.ops.cond(c.ops.less(p, 2), lambda: (update(c, x, r, p),), lambda: (x,))[0],
    "chosen by a branch": lambda c, x, r, p: update(c, _cond(c, x, p), r, p),
    "a kernel of another's result": _in_kernels,
}
KEPT: Final[dict[str, Body]] = {
    "read": lambda c, x, r, p: c.ops.add(x, r),
    "the update": lambda c, x, r, p: c.ops.dynamic_update_slice(c.ops.full((5, 6), 0.0, "f32"), x, [p, 0]),
    "all replaced": lambda c, x, r, p: c.ops.dynamic_update_slice(x, c.ops.exp(x), [p, 0]),
    "computed first": lambda c, x, r, p: update(c, c.ops.exp(x), r, p),
    "a dead update": lambda c, x, r, p: (update(c, x, r, p), c.ops.exp(x))[1],
    "another carried value": lambda c, x, r, p: c.ops.fori_loop(
        2, lambda i, v, w: (v, update(c, w, r, i)), (x, c.ops.exp(x))
    )[1],
    "contracted": lambda c, x, r, p: update(c, c.ops.dot_general(x, x, ((0,), (0,))), r, p),
}
# The compiler may find that what is computed is x.
MAYBE: Final[dict[str, Body]] = {
    "times one": lambda c, x, r, p: update(c, c.ops.mul(x, 1.0), r, p),
    "negated twice": lambda c, x, r, p: update(c, c.ops.negate(c.ops.negate(x)), r, p),
    "cut and joined": lambda c, x, r, p: update(c, c.ops.concat(c.ops.split(x, (1, 3), 0), 0), r, p),
    "sorted": lambda c, x, r, p: c.ops.sort(x, 1)[0],
}


def _step(ctx: Any, x: Any, row: Any, position: Any) -> Any:
    return update(ctx, x, ctx.ops.negate(row), 0)


def _scaled(ctx: Any, x: Any, row: Any, position: Any) -> Any:
    return {"y": ctx.ops.mul(x, 2.0), "other": ctx.ops.dot_general(x, x, ((1,), (1,)))}


def _shifted(ctx: Any, x: Any, row: Any, position: Any) -> Any:
    both = ctx.ops.concat((x, row), 0)
    return {"y": ctx.ops.slice(both, (1, 0), (5, 6)), "other": ctx.ops.sum(both, 0)}


# States that are computed anew from the old one, which other results read too. IREE writes such a state into the
# argument's buffer before the others have read it, if it is told that the state takes over the buffer.
STATES: Final[dict[str, Body]] = {
    "scaled": _scaled,
    "shifted": _shifted,
    "cut": lambda c, x, r, p: {"y": c.ops.mul(x, 2.0), "other": c.ops.slice(x, (0, 0), (2, 6))},
    "contracted": lambda c, x, r, p: {
        "y": c.ops.dot_general(c.ops.full((4, 4), 0.5, "f32"), x, ((1,), (0,))),
        "other": c.ops.dot_general(x, x, ((1,), (1,))),
    },
    "chosen": lambda c, x, r, p: {
        "y": c.ops.cond(c.ops.less(p, 5), lambda: (c.ops.exp(x),), lambda: (x,))[0],
        "other": c.ops.reverse(x, (0,)),
    },
    "scattered": lambda c, x, r, p: {
        "y": c.ops.scatter(x, c.ops.broadcast(p, (1, 6)), r, 0, "set"),
        "other": c.ops.dot_general(x, x, ((1,), (1,))),
    },
    "looped": lambda c, x, r, p: {
        "y": c.ops.fori_loop(3, lambda i, v: (update(c, v, r, i),), (x,))[0],
        "other": c.ops.dot_general(x, x, ((1,), (1,))),
    },
}


def _between(ctx: Any, updated: Any, row: Any) -> Any:
    more = ctx.ops.reverse(ctx.ops.exp(row), (1,))
    return {"other": ctx.ops.reverse(updated, (0,)), "y": update(ctx, updated, ctx.ops.negate(row), 0), "more": more}


def _in_two_kernels(ctx: Any, x: Any, row: Any, position: Any) -> Any:
    with ctx.block("layers.0"):
        y = update(ctx, x, row, position)
    with ctx.block("layers.1"):
        other = update(ctx, x, ctx.ops.exp(row), position)
    return {"y": y, "other": ctx.ops.sum(other)}


# Reads of what an updated argument held at first. IREE runs them after the update if it is told of the alias.
READ_BESIDE: Final[dict[str, Body]] = {
    "turned": lambda c, x, r, p: {
        "other": c.ops.reverse(x, (0,)),
        "y": update(c, x, r, p),
        "more": c.ops.exp(r),
    },
    "cut and joined": lambda c, x, r, p: {
        "other": c.ops.concat((c.ops.slice(x, (0, 0), (2, 6)), c.ops.slice(x, (2, 0), (4, 6))), 0),
        "y": update(c, x, r, p),
    },
    "turned between two updates": lambda c, x, r, p: _between(c, update(c, x, r, p), r),
    "given back": lambda c, x, r, p: {"y": c.ops.slice(x, (0, 0), (4, 6)), "other": update(c, x, r, p)},
    "updated for another": lambda c, x, r, p: {
        "y": update(c, x, r, p),
        "other": c.ops.sum(update(c, x, c.ops.exp(r), p)),
    },
    "updated for another, in kernels": _in_two_kernels,
}
# Results beside the update that may lie in its buffer. IREE gives them the updated buffer if nobody prevents it.
SHARED: Final[dict[str, Body]] = {
    "the old value": lambda c, x, r, p: {"y": update(c, x, r, p), "other": x},
    "the old value reshaped": lambda c, x, r, p: {"y": update(c, x, r, p), "other": c.ops.reshape(x, (24,))},
    "the old value times one": lambda c, x, r, p: {"y": update(c, x, r, p), "other": c.ops.mul(x, 1.0)},
    "another update": lambda c, x, r, p: {"y": update(c, x, r, p), "other": _step(c, x, r, p)},
    "an earlier update": lambda c, x, r, p: {"other": update(c, x, r, p), "y": _step(c, update(c, x, r, p), r, p)},
    "the same update": lambda c, x, r, p: dict.fromkeys(("y", "other"), update(c, x, r, p)),
    "the old value, sorted too": lambda c, x, r, p: {"y": c.ops.sort(c.ops.negate(x), 1)[0], "other": x},
    "the old value alone": lambda c, x, r, p: {"y": c.ops.add(update(c, x, r, p), 1.0), "other": x},
}
