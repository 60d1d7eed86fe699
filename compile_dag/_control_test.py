import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from compile_dag import ComputeGraph, GraphExecutionContext, Tape, Value, evaluate, record, regions_of
from lang_core import (
    EagerExecutionContext,
    ExecutionContext,
    Module,
    OpError,
    Parameter,
    RecordingError,
    Tensor,
    TensorSpec,
    TraceEscapeError,
)

X = TensorSpec((2, 3), "f32")


def value(tensor: Tensor) -> Value:
    assert isinstance(tensor, Value)
    return tensor


def is_small(ctx: ExecutionContext) -> Callable[..., Tensor]:
    return lambda v, *_: ctx.ops.all(ctx.ops.less(v, 100.0))


def doubled_until_large(ctx: ExecutionContext, x: Tensor, step: Tensor) -> Tensor:
    return ctx.ops.while_loop(is_small(ctx), lambda v: (ctx.ops.add(ctx.ops.mul(v, 2.0), step),), (x,))[0]


def test_a_loop_is_one_node_with_two_graphs() -> None:
    graph = record(doubled_until_large, X, TensorSpec((3,), "f32"))
    (node,) = graph.nodes
    cond, body = regions_of(node)
    assert node.op.name == "while"
    assert node.inputs == (graph.inputs["x"], graph.inputs["step"])
    assert [(g.name, len(g.inputs), len(g.captures)) for g in (cond, body)] == [("cond", 1, 0), ("body", 1, 1)]
    assert body.captures == (graph.inputs["step"],)


def test_a_branch_is_one_node_with_two_graphs_that_capture_its_operands() -> None:
    def chosen(ctx: ExecutionContext, pred: Tensor, x: Tensor, y: Tensor) -> Any:
        return ctx.ops.cond(pred, lambda a, b: (a, ctx.ops.exp(b)), lambda a, b: (b, a), (x, y))

    graph = record(chosen, TensorSpec((), "bool"), X, X)
    (node,) = graph.nodes
    pred, x, y = graph.inputs.values()
    assert node.inputs == (pred, y, x)  # in the order of first use
    on_true, on_false = regions_of(node)
    assert on_true.captures == (y, x)
    assert set(on_false.captures) == {x, y}
    assert (len(on_true.inputs), len(on_false.inputs)) == (0, 0)


@pytest.mark.parametrize("include_nested", [False, True])
@pytest.mark.parametrize("levels", [0, 1, 2])
def test_what_a_region_holds_reaches_no_recording_around_it(levels: int, include_nested: bool) -> None:
    ctx = GraphExecutionContext()
    tapes: list[Tape] = []

    def nested(level: int, x: Tensor) -> Tensor:
        with ctx.recording(include_nested=include_nested) as tape:
            tapes.append(tape)
            return nested(level - 1, x) if level else doubled_until_large(ctx, x, ctx.ops.iota((3,), 0, "f32"))

    with ctx.recording(include_nested=True) as outer:
        y = nested(levels, ctx.placeholder("x", X))
    graph = outer.to_compute_graph({"y": value(y)})
    assert [node.op.name for node in graph.nodes] == ["iota", "while"]
    assert [node.op.name for node in tapes[-1].nodes] == ["iota", "while"]
    eager = EagerExecutionContext()
    x = eager.ops.ones((2, 3), "f32")
    wanted = doubled_until_large(eager, x, eager.ops.iota((3,), 0, "f32"))
    assert np.array_equal(evaluate(graph, eager, {"x": x})["y"].numpy(), wanted.numpy())


def test_a_recording_inside_a_region_stays_inside() -> None:
    ctx = GraphExecutionContext()

    def body(v: Tensor) -> tuple[Tensor]:
        with ctx.recording() as tape:
            ctx.ops.sin(v)
        assert [node.op.name for node in tape.nodes] == ["sin"]
        return (ctx.ops.cos(v),)

    with ctx.recording(include_nested=True) as outer:
        x = ctx.placeholder("x", X)
        ctx.ops.while_loop(is_small(ctx), body, (x,))
    (node,) = outer.nodes
    assert [inner.op.name for inner in node.attribute("body").nodes] == ["cos"]


def test_nested_regions_capture_through_every_level() -> None:
    def nested(ctx: ExecutionContext, x: Tensor, y: Tensor) -> Tensor:
        def body(v: Tensor) -> tuple[Tensor]:
            big = ctx.ops.any(ctx.ops.greater(v, 9.0))
            return ctx.ops.cond(big, lambda: (ctx.ops.add(v, y),), lambda: (ctx.ops.add(x, v),), ())  # pyright: ignore[reportReturnType]

        return ctx.ops.while_loop(is_small(ctx), body, (x,))[0]

    graph = record(nested, X, X)
    (loop,) = graph.nodes
    assert loop.attribute("body").captures == (graph.inputs["y"], graph.inputs["x"])
    (*_, branch) = loop.attribute("body").nodes
    (v,) = loop.attribute("body").inputs.values()
    assert branch.attribute("on_true").captures == (v, graph.inputs["y"])
    ctx = EagerExecutionContext()
    x, y = ctx.ops.full((2, 3), 4.0, "f32"), ctx.ops.full((2, 3), 50.0, "f32")
    whole = evaluate(graph, ctx, {"x": x, "y": y})["result"].numpy()
    assert np.array_equal(whole, nested(ctx, x, y).numpy())


def test_parameters_of_regions_are_parameters_of_the_graph() -> None:
    class Model(Module):
        def __init__(self) -> None:
            self.outside, self.inside = Parameter((3,), "f32"), Parameter((2, 1), "bf16")

        def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
            def body(v: Tensor) -> tuple[Tensor]:
                weights = ctx.parameter(self.outside), ctx.ops.cast(ctx.parameter(self.inside), "f32")
                return (ctx.ops.add(v, ctx.ops.mul(*weights)),)

            first = ctx.ops.add(x, ctx.parameter(self.outside))
            return ctx.ops.while_loop(is_small(ctx), body, (first,))[0]

    parameters = record(Model(), X, input_names=["x"]).parameters()
    assert {path: v.spec for path, v in parameters.items()} == {
        "outside": TensorSpec((3,), "f32"),
        "inside": TensorSpec((2, 1), "bf16"),
    }


def escaping(ctx: ExecutionContext, x: Tensor) -> Tensor:
    kept: list[Tensor] = []

    def body(v: Tensor) -> tuple[Tensor]:
        kept.append(ctx.ops.exp(v))
        return (kept[0],)

    ctx.ops.while_loop(is_small(ctx), body, (x,))
    return ctx.ops.negate(kept[0])


@pytest.mark.parametrize("include_nested", [False, True])
def test_a_value_of_a_region_is_of_no_use_outside(include_nested: bool) -> None:
    ctx = GraphExecutionContext()
    with ctx.recording(include_nested=include_nested):
        x = ctx.placeholder("x", X)
        with pytest.raises(RecordingError, match=r"negate .*Value\(f32\[2,3\] of exp .*a recording that has ended"):
            escaping(ctx, x)


def test_a_value_of_one_region_is_of_no_use_in_the_other() -> None:
    kept: list[Tensor] = []

    def shared(ctx: ExecutionContext, x: Tensor) -> Any:
        pred = ctx.ops.any(ctx.ops.greater(x, 0.0))
        return ctx.ops.cond(pred, lambda: kept.append(ctx.ops.exp(x)) or (kept[0],), lambda: (kept[0],))

    with pytest.raises(RecordingError, match=r"cond .*Value\(f32\[2,3\] of exp .*has ended"):
        record(shared, X)


def loop(ctx: ExecutionContext, *, cond: Any = None, body: Any = None, init: Any = None) -> Any:
    """A loop that is right but for what is given."""
    x = ctx.placeholder("x", X)
    init = (x, ctx.ops.cast(x, "bf16")) if init is None else init
    return ctx.ops.while_loop(cond or is_small(ctx), body or (lambda *values: values), init)


def wrong(**parts: Any) -> Callable[[ExecutionContext], Any]:
    return lambda ctx: loop(ctx, **{name: part(ctx) for name, part in parts.items()})


ARRAY = np.zeros((2, 3), np.float32)
WRONG_LOOPS: dict[str, tuple[Callable[[ExecutionContext], Any], type[Exception], str]] = {
    "array among the values": (wrong(init=lambda _: (ARRAY,)), TraceEscapeError, r"^while \(.*an array of float32"),
    "number among the values": (wrong(init=lambda _: (0,)), TraceEscapeError, r"^while \(.*: 0, computed outside"),
    "cond of a shape": (wrong(cond=lambda c: lambda v, _: c.ops.less(v, 0.0)), OpError, "while_c1: cond returns"),
    "cond of a dtype": (wrong(cond=lambda c: lambda *_: c.constant(1)), OpError, r"while_c1: cond returns \(i32"),
    "cond of Python": (wrong(cond=lambda _: lambda *_: True), TraceEscapeError, r"^while \(.*: True, computed outside"),
    "body of another dtype": (wrong(body=lambda _: lambda v, w: (v, v)), OpError, r"while_c2: body returns .*f32"),
    "body of fewer values": (wrong(body=lambda _: lambda v, w: (v,)), OpError, "while_c2: body returns"),
    "body of an array": (
        wrong(body=lambda _: lambda v, w: (ARRAY, w)),
        TraceEscapeError,
        r"^while \(.*float32\[2, 3\]",
    ),
    "body of one value": (wrong(body=lambda _: lambda v, w: v), OpError, "body returned Value.*: return a sequence of"),
    "body of no values": (wrong(body=lambda _: lambda v, w: ()), OpError, "body returned nothing"),
    "body of None": (wrong(body=lambda _: lambda v, w: None), OpError, "body returned None: return a sequence of"),
}


@pytest.mark.parametrize("name", WRONG_LOOPS)
def test_a_wrong_loop(name: str) -> None:
    function, error, message = WRONG_LOOPS[name]
    ctx = GraphExecutionContext()
    with ctx.recording() as tape, pytest.raises(error, match=message) as caught:
        function(ctx)
    assert "_control_test.py" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert all(node.op.name == "cast" for node in tape.nodes)
    assert not ctx.isRecording


WRONG_BRANCHES: dict[str, tuple[Callable[[ExecutionContext, Tensor], Any], type[Exception], str]] = {
    "pred of a shape": (
        lambda ctx, x: ctx.ops.cond(ctx.ops.less(x, 0.0), lambda: (x,), lambda: (x,)),
        OpError,
        r"cond_c1: pred is bool\[2,3\]",
    ),
    "pred of Python": (
        lambda ctx, x: ctx.ops.cond(True, lambda: (x,), lambda: (x,)),  # pyright: ignore[reportArgumentType]
        TraceEscapeError,
        r"^cond \(.*: True, computed outside",
    ),
    "branches of other specs": (
        lambda ctx, x: ctx.ops.cond(ctx.constant(True), lambda: (x,), lambda: (ctx.ops.sum(x),)),
        OpError,
        r"cond_c2: the branches return \(f32\[2,3\],\) and \(f32\[\],\)",
    ),
    "array among the operands": (
        lambda ctx, x: ctx.ops.cond(ctx.constant(True), lambda v: (x,), lambda v: (x,), (ARRAY,)),  # pyright: ignore[reportArgumentType]
        TraceEscapeError,
        r"^cond \(.*float32\[2, 3\], computed outside",
    ),
    "branch of one value": (
        lambda ctx, x: ctx.ops.cond(ctx.constant(True), lambda: x, lambda: (x,)),  # pyright: ignore[reportArgumentType]
        OpError,
        "on_true returned Value.*: return a sequence of tensors",
    ),
}


@pytest.mark.parametrize("name", WRONG_BRANCHES)
def test_a_wrong_branch(name: str) -> None:
    function, error, message = WRONG_BRANCHES[name]
    ctx = GraphExecutionContext()
    with ctx.recording(), pytest.raises(error, match=message) as caught:
        function(ctx, ctx.placeholder("x", X))
    assert re.search(r"_control_test.py:\d+", str(caught.value))
    assert "\n" not in str(caught.value)


def test_an_exception_in_a_region_closes_it() -> None:
    ctx = GraphExecutionContext()

    def body(v: Tensor) -> tuple[Tensor]:
        with ctx.block("inside"):
            raise ZeroDivisionError

    with ctx.recording() as tape:
        x = ctx.placeholder("x", X)
        with pytest.raises(ZeroDivisionError):
            ctx.ops.while_loop(is_small(ctx), body, (x,))
        y = ctx.ops.exp(x)
    graph: ComputeGraph = tape.to_compute_graph({"y": value(y)})
    assert [(node.op.name, node.block) for node in graph.nodes] == [("exp", "")]
