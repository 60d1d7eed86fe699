"""Directions of arguments: what programs do with what they are given."""

from collections.abc import Callable
from typing import Any

import pytest

from compile_hlo import LoweredModule, lower_module
from compile_hlo.directions import ArgumentDirection, Kernel, KernelArgument, KernelResult, check_declared, joined
from compile_hlo.emit import ExternalParameters
from lang_core import Argument, EntryPoint, GraphError, Parameter, TensorSpec, f32, i32

X, ROW = TensorSpec((4, 6), f32), TensorSpec((1, 6), f32)
Body = Callable[[Any, Any, Any, Any], Any]


def lowered(body: Body, streaming: bool = False, **x: Any) -> LoweredModule:
    """``body(ctx, x, row, position)`` returns the result, or results by name."""

    def fn(ctx: Any, *values: Any) -> dict[str, Any]:
        found = body(ctx, *values)
        return found if isinstance(found, dict) else {"y": found}

    arguments = (Argument("x", X, **x), Argument("row", ROW), Argument("position", TensorSpec((), i32), "scalar"))
    return lower_module([EntryPoint("main", fn, arguments)], lambda _: None, ExternalParameters(), streaming=streaming)


def direction(body: Body, **x: Any) -> ArgumentDirection:
    buffered, streamed = (lowered(body, streaming, **x).functions[0].directions for streaming in (False, True))
    assert buffered == streamed
    assert [each.name for each in buffered] == ["x", "row"]
    assert (buffered[1].effective, buffered[1].guarded) == ("IN", False)
    return buffered[0]


def update(ctx: Any, x: Any, row: Any, position: Any) -> Any:
    rank = x.spec.ndim
    row = ctx.ops.reshape(row, (1,) * (rank - 1) + (6,))
    return ctx.ops.dynamic_update_slice(x, row, [position] + [0] * (rank - 1))


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


UPDATED: dict[str, Body] = {
    "directly": update,
    "reshaped": lambda c, x, r, p: update(c, c.ops.reshape(x, (2, 2, 6)), r, p),
    "a dimension of 1 more": lambda c, x, r, p: update(c, c.ops.broadcast(x, (1, 4, 6)), r, p),
    "only dimensions of 1 transposed": lambda c, x, r, p: update(
        c, c.ops.transpose(c.ops.reshape(x, (4, 1, 6)), (1, 0, 2)), r, p
    ),
    "the whole slice": lambda c, x, r, p: update(c, c.ops.slice(x, (0, 0), (4, 6)), r, p),
    "twice": lambda c, x, r, p: update(c, update(c, x, r, p), c.ops.negate(r), 0),
    "scatter": lambda c, x, r, p: c.ops.scatter(x, c.ops.broadcast(p, (1, 6)), r, 0, "add"),
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
KEPT: dict[str, Body] = {
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
MAYBE: dict[str, Body] = {
    "times one": lambda c, x, r, p: update(c, c.ops.mul(x, 1.0), r, p),
    "negated twice": lambda c, x, r, p: update(c, c.ops.negate(c.ops.negate(x)), r, p),
    "cut and joined": lambda c, x, r, p: update(c, c.ops.concat(c.ops.split(x, (1, 3), 0), 0), r, p),
    "sorted": lambda c, x, r, p: c.ops.sort(x, 1)[0],
}


@pytest.mark.parametrize("name", UPDATED)
def test_an_argument_that_is_updated(name: str) -> None:
    found = direction(UPDATED[name])
    assert (found.declared, found.effective, found.guarded) == ("IN", "INOUT", True)
    assert found.written is not None
    assert found.written.certain
    assert found.written.op == ("scatter" if name == "scatter" else "dynamic_update_slice")
    assert "_function_test.py:" in found.written.line


@pytest.mark.parametrize("name", KEPT)
def test_an_argument_that_is_kept(name: str) -> None:
    found = direction(KEPT[name])
    assert (found.declared, found.effective, found.guarded, found.written) == ("IN", "IN", False, None)


@pytest.mark.parametrize("name", MAYBE)
def test_an_argument_that_the_compiler_may_write(name: str) -> None:
    found = direction(MAYBE[name])
    assert (found.declared, found.effective, found.guarded) == ("IN", "IN", True)


def test_a_donated_argument_is_inout_and_out_where_it_is_not_read() -> None:
    found = direction(update, alias_result="y")
    assert (found.declared, found.effective, found.guarded) == ("INOUT", "INOUT", False)
    found = direction(lambda c, x, r, p: c.ops.broadcast(c.ops.exp(r), (4, 6)), alias_result="y")
    assert (found.declared, found.effective, found.guarded) == ("INOUT", "OUT", False)
    found = direction(lambda c, x, r, p: x, alias_result="y")
    assert found.effective == "INOUT"


def test_an_argument_that_is_neither_donated_nor_copied_must_not_be_updated() -> None:
    found = lowered(update).functions[0]
    message = (
        r"entry point 'main': argument 'x' is declared IN and is not donated, but dynamic_update_slice \(at the root, "
        r".*_function_test.py:\d+\) updates it in place: .*alias_result=.*copied=True"
    )
    with pytest.raises(GraphError, match=message):
        check_declared("main", found.directions)
    for allowed in (lowered(update, alias_result="y"), lowered(update, copied=True), lowered(MAYBE["sorted"])):
        check_declared("main", allowed.functions[0].directions)


def test_a_kernel_is_joined_over_all_its_call_sites() -> None:
    """The first site passes a temporary value, the second a donated argument; an argument that is read is IN."""

    def body(ctx: Any, x: Any, row: Any, position: Any) -> Any:
        weight = Parameter(ROW.shape)
        weight._name = "w"
        found = []
        for index, value in enumerate((ctx.ops.exp(x), x)):
            with ctx.block(f"layers.{index}"):
                found.append(update(ctx, value, ctx.ops.add(row, ctx.parameter(weight)), position))
        return {"other": found[0], "y": found[1]}

    for streaming in (False, True):
        (kernel,) = lowered(body, streaming, alias_result="y").kernels
        assert (kernel.name, kernel.call_sites) == ("block.layers.N", 2)
        assert [(each.spec, each.declared, each.effective) for each in kernel.arguments] == [
            (ROW, "IN", "IN"),
            (X, "INOUT", "INOUT"),
            (ROW, "IN", "IN"),
            (TensorSpec((), i32), "IN", "IN"),
        ]
        assert kernel.signature == ("IN", "INOUT", "IN")
        assert [(each.direction, each.alias_arg) for each in kernel.results] == [("INOUT", 1)]


def test_call_sites_of_one_kernel_pass_the_same_tensors() -> None:
    kernel = Kernel("k", (KernelArgument(X, "IN", "IN"), KernelArgument(ROW, "INOUT", "IN")), (KernelResult(X),))
    kernel.join((KernelArgument(X, "IN", "INOUT"), KernelArgument(ROW, "IN", "IN")), "block 'layers.1'")
    assert kernel.signature == ("INOUT", "IN")
    assert [each.declared for each in kernel.arguments] == ["IN", "INOUT"]
    assert kernel.call_sites == 2
    message = (
        r"kernel 'k' is called at block 'layers.2' with 1 tensors \(f32\[4,6\]\), and at 2 call sites before with 2 "
        r"tensors \(f32\[4,6\], f32\[1,6\]\): .*the same at all call sites"
    )
    with pytest.raises(GraphError, match=message):
        kernel.join((KernelArgument(X, "IN", "IN"),), "block 'layers.2'")


def test_directions_add_up() -> None:
    assert joined("IN", "IN") == "IN"
    assert joined("OUT", "OUT") == "OUT"
    assert joined("IN", "OUT") == joined("OUT", "INOUT") == joined("IN", "INOUT") == "INOUT"


@pytest.mark.parametrize("count", [65, 300])
def test_the_number_of_tensors_has_no_limit(count: int) -> None:
    """Every third argument is updated, in one kernel."""

    def fn(ctx: Any, *values: Any) -> dict[str, Any]:
        with ctx.block("all"):
            found = [update(ctx, x, values[0], 1) if i % 3 == 1 else ctx.ops.exp(x) for i, x in enumerate(values)]
        return {f"y{i}": value for i, value in enumerate(found)}

    arguments = [Argument("x0", ROW)]
    arguments += [Argument(f"x{i}", X, alias_result=f"y{i}" if i % 3 == 1 else None) for i in range(1, count)]
    module = lower_module([EntryPoint("main", fn, tuple(arguments))], lambda _: None, ExternalParameters())
    expected = ["INOUT" if i % 3 == 1 else "IN" for i in range(count)]
    assert [each.effective for each in module.functions[0].directions] == expected
    assert sorted(module.kernels[0].signature) == sorted(expected)
