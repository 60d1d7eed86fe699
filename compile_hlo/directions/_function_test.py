"""Directions of arguments: what programs do with what they are given."""

from typing import Any

import pytest

from compile_hlo import LoweredModule, lower_module
from compile_hlo.directions import (
    KernelArgument,
    KernelResult,
    KernelSignature,
    LoweredArgument,
    check_declared,
    joined,
)
from compile_hlo.directions._programs_testing import (
    KEPT,
    MAYBE,
    READ_BESIDE,
    ROW,
    SHARED,
    STATES,
    UPDATED,
    Body,
    X,
    entry_point,
    update,
)
from compile_hlo.emit import ExternalParameters
from lang_core import Argument, EntryPoint, GraphError, Parameter, TensorSpec, i32


def lowered(body: Body, streaming: bool = False, **x: Any) -> LoweredModule:
    return lower_module([entry_point(body, **x)], lambda _: None, ExternalParameters(), streaming=streaming)


def direction(body: Body, **x: Any) -> LoweredArgument:
    buffered, streamed = (lowered(body, streaming, **x).functions[0].directions for streaming in (False, True))
    assert buffered == streamed
    assert [argument.name for argument in buffered] == ["x", "row"]
    assert (buffered[1].effective, buffered[1].guarded) == ("IN", False)
    return buffered[0]


@pytest.mark.parametrize("name", UPDATED)
def test_an_argument_that_is_updated(name: str) -> None:
    argument = direction(UPDATED[name])
    assert (argument.declared, argument.effective, argument.guarded) == ("IN", "INOUT", True)
    assert argument.written is not None
    assert argument.written.certain
    assert argument.written.op == (name if name in ("put", "scatter") else "dynamic_update_slice")
    assert "_programs_testing.py:" in argument.written.line


@pytest.mark.parametrize("name", KEPT)
def test_an_argument_that_is_kept(name: str) -> None:
    argument = direction(KEPT[name])
    assert (argument.declared, argument.effective, argument.guarded, argument.written) == ("IN", "IN", False, None)


@pytest.mark.parametrize("name", MAYBE)
def test_an_argument_that_the_compiler_may_write(name: str) -> None:
    argument = direction(MAYBE[name])
    assert (argument.declared, argument.effective, argument.guarded) == ("IN", "IN", True)


def test_a_donated_argument_is_inout_and_out_where_it_is_not_read() -> None:
    argument = direction(update, alias_result="y")
    assert (argument.declared, argument.effective, argument.guarded) == ("INOUT", "INOUT", False)
    argument = direction(lambda c, x, r, p: c.ops.broadcast(c.ops.exp(r), (4, 6)), alias_result="y")
    assert (argument.declared, argument.effective, argument.guarded) == ("INOUT", "OUT", False)
    argument = direction(lambda c, x, r, p: x, alias_result="y")
    assert argument.effective == "INOUT"


def test_an_argument_that_is_neither_donated_nor_copied_must_not_be_updated() -> None:
    function = lowered(update).functions[0]
    message = (
        r"entry point 'main': argument 'x' is declared IN and is not donated, but dynamic_update_slice \(at the root, "
        r".*_programs_testing.py:\d+\) updates it in place: .*alias_result=.*copied=True"
    )
    with pytest.raises(GraphError, match=message):
        check_declared("main", function.directions)
    for allowed in (lowered(update, alias_result="y"), lowered(update, copied=True), lowered(MAYBE["sorted"])):
        check_declared("main", allowed.functions[0].directions)


def test_a_kernel_is_joined_over_all_its_call_sites() -> None:
    """The first site passes a temporary value, the second a donated argument; an argument that is read is IN."""

    def body(ctx: Any, x: Any, row: Any, position: Any) -> Any:
        weight = Parameter(ROW.shape)
        weight._name = "w"
        updated = []
        for index, value in enumerate((ctx.ops.exp(x), x)):
            with ctx.block(f"layers.{index}"):
                updated.append(update(ctx, value, ctx.ops.add(row, ctx.parameter(weight)), position))
        return {"other": updated[0], "y": updated[1]}

    for streaming in (False, True):
        (kernel,) = lowered(body, streaming, alias_result="y").kernels
        assert (kernel.name, kernel.call_sites) == ("block.layers.N", 2)
        assert [(argument.spec, argument.declared, argument.effective) for argument in kernel.arguments] == [
            (ROW, "IN", "IN"),
            (X, "INOUT", "INOUT"),
            (ROW, "IN", "IN"),
            (TensorSpec((), i32), "IN", "IN"),
        ]
        assert kernel.signature == ("IN", "INOUT", "IN")
        assert [(result.direction, result.alias_arg) for result in kernel.results] == [("INOUT", 1)]


def test_call_sites_of_one_kernel_pass_the_same_tensors() -> None:
    kernel = KernelSignature(
        "k", (KernelArgument(X, "IN", "IN"), KernelArgument(ROW, "INOUT", "IN")), (KernelResult(X),)
    )
    kernel.join((KernelArgument(X, "IN", "INOUT"), KernelArgument(ROW, "IN", "IN")), "block 'layers.1'")
    assert kernel.signature == ("INOUT", "IN")
    assert [argument.declared for argument in kernel.arguments] == ["IN", "INOUT"]
    assert kernel.call_sites == 2
    message = (
        r"kernel 'k' is called at block 'layers.2' with 1 tensors \(f32\[4,6\]\), and at 2 call sites before with 2 "
        r"tensors \(f32\[4,6\], f32\[1,6\]\): .*the same at all call sites"
    )
    with pytest.raises(GraphError, match=message):
        kernel.join((KernelArgument(X, "IN", "IN"),), "block 'layers.2'")


@pytest.mark.parametrize(
    ("name", "in_place"),
    [
        ("directly", True),
        ("twice", True),
        ("put", True),
        ("scatter", False),
        ("carried by a loop", False),
        ("one branch", False),
    ],
)
def test_only_an_update_comes_back_in_the_buffer(name: str, in_place: bool) -> None:
    assert direction(UPDATED[name], alias_result="y").in_place == in_place
    assert not direction(UPDATED[name]).in_place


@pytest.mark.parametrize("name", STATES)
def test_what_is_computed_anew_has_a_buffer_of_its_own(name: str) -> None:
    argument = direction(STATES[name], alias_result="y")
    assert (argument.declared, argument.in_place) == ("INOUT", False)


@pytest.mark.parametrize("name", READ_BESIDE)
def test_an_argument_that_is_read_beside_its_update_is_not_updated_in_place(name: str) -> None:
    argument = direction(READ_BESIDE[name], alias_result="y")
    assert (argument.declared, argument.effective, argument.in_place) == ("INOUT", "INOUT", False)


def test_an_update_that_is_written_twice_tells_no_alias() -> None:
    """Equal ops are merged when the head, and with it the alias, stands already. Buffered text is streamed text."""

    def body(ctx: Any, x: Any, row: Any, position: Any) -> dict[str, Any]:
        other = ctx.ops.sum(update(ctx, x, row, position))
        return {"other": other, "y": update(ctx, x, row, position)}

    assert not direction(body, alias_result="y").in_place
    texts: list[list[str]] = [[], []]
    for streaming, pieces in enumerate(texts):
        lower_module(
            [entry_point(body, alias_result="y")], pieces.append, ExternalParameters(), streaming=bool(streaming)
        )
    assert "".join(texts[0]) == "".join(texts[1])
    assert "".join(texts[0]).count("stablehlo.dynamic_update_slice") == 1


def test_an_update_that_no_result_needs_takes_no_alias() -> None:
    def body(ctx: Any, x: Any, row: Any, position: Any) -> Any:
        update(ctx, x, ctx.ops.exp(row), position)
        return update(ctx, x, row, position)

    assert direction(body, alias_result="y").in_place


def test_a_result_that_shares_a_buffer_is_written_apart() -> None:
    def text(body: Body, **x: Any) -> str:
        pieces: list[str] = []
        lower_module([entry_point(body, **x)], pieces.append, ExternalParameters(), streaming=True)
        return "".join(pieces)

    for name, body in SHARED.items():
        assert text(body, alias_result="y").count("optimization_barrier") == 1, name
    assert "optimization_barrier" not in text(update, alias_result="y") + text(update)


def test_directions_add_up() -> None:
    assert joined("IN", "IN") == "IN"
    assert joined("OUT", "OUT") == "OUT"
    assert joined("IN", "OUT") == joined("OUT", "INOUT") == joined("IN", "INOUT") == "INOUT"


@pytest.mark.parametrize("count", [65, 300])
def test_the_number_of_tensors_has_no_limit(count: int) -> None:
    """Every third argument is updated, in one kernel."""

    def fn(ctx: Any, *values: Any) -> dict[str, Any]:
        with ctx.block("all"):
            results = [update(ctx, x, values[0], 1) if i % 3 == 1 else ctx.ops.exp(x) for i, x in enumerate(values)]
        return {f"y{i}": value for i, value in enumerate(results)}

    arguments = [Argument("x0", ROW)]
    arguments += [Argument(f"x{i}", X, alias_result=f"y{i}" if i % 3 == 1 else None) for i in range(1, count)]
    module = lower_module([EntryPoint("main", fn, tuple(arguments))], lambda _: None, ExternalParameters())
    expected = ["INOUT" if i % 3 == 1 else "IN" for i in range(count)]
    assert [argument.effective for argument in module.functions[0].directions] == expected
    assert sorted(module.kernels[0].signature) == sorted(expected)
