import functools
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from compile_dag import ComputeGraph, GraphExecutionContext, Node, Value, record, verify
from lang_core import (
    Argument,
    EagerExecutionContext,
    EntryPoint,
    ExecutionContext,
    GraphError,
    Module,
    RecordingError,
    Tensor,
    TensorSpec,
)

X, Y = TensorSpec((2, 3), "f32"), TensorSpec((3,), "f32")


def added(ctx: ExecutionContext, left: Tensor, right: Tensor) -> Tensor:
    return ctx.ops.add(left, right)


def scaled(ctx: ExecutionContext, x: Tensor, by: float = 2.0, *, plus: float = 0.5) -> Tensor:
    return ctx.ops.add(ctx.ops.mul(x, by), plus)


def summed(ctx: ExecutionContext, first: Tensor, *others: Tensor) -> Tensor:
    for other in others:
        first = ctx.ops.add(first, other)
    return first


class Method:
    def run(self, ctx: ExecutionContext, x: Tensor, y: Tensor, /) -> Tensor:
        return ctx.ops.add(x, y)


@pytest.mark.parametrize(
    ("fn", "specs", "names"),
    [
        (added, (X, Y), ["left", "right"]),
        (scaled, (X,), ["x"]),
        (summed, (X, Y, Y), ["first", "arg1", "arg2"]),
        (summed, (X,), ["first"]),
        (Method().run, (X, Y), ["x", "y"]),
        (functools.partial(scaled, by=3.0), (X,), ["x"]),
        (lambda ctx, *values: values, (X, Y), ["arg0", "arg1"]),
        (lambda ctx: ctx.ops.iota((3,)), (), []),
    ],
)
def test_inputs_are_named_as_the_arguments(
    fn: Callable[..., Any], specs: tuple[TensorSpec, ...], names: list[str]
) -> None:
    graph = record(fn, *specs)
    assert list(graph.inputs) == names
    assert tuple(value.spec for value in graph.inputs.values()) == specs


def test_inputs_are_named_as_asked() -> None:
    assert list(record(added, X, Y, input_names=("a", "b.0")).inputs) == ["a", "b.0"]


def test_an_entry_point_is_recorded() -> None:
    entry = EntryPoint("step", lambda ctx, x, y: {"sum": ctx.ops.add(x, y)}, (Argument("x", X), Argument("y", Y)))
    names = [argument.name for argument in entry.arguments]
    graph = record(entry, *(argument.spec for argument in entry.arguments), input_names=names, name=entry.name)
    assert (graph.name, list(graph.inputs), list(graph.outputs)) == ("step", ["x", "y"], ["sum"])


@pytest.mark.parametrize(
    ("fn", "given", "name"),
    [(added, None, "added"), (added, "f", "f"), (lambda ctx, a, b: (), None, "main"), (Method().run, None, "run")],
)
def test_the_graph_is_named_after_the_function(fn: Callable[..., Any], given: str | None, name: str) -> None:
    assert record(fn, X, Y, name=given).name == name


def test_a_module_is_recorded() -> None:
    class Model(Module):
        def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
            return ctx.ops.exp(x)

    graph = record(Model(), X)
    assert (graph.name, len(graph.nodes)) == ("Model", 1)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda x: x, ["result"]),
        (lambda x: (x,), ["result0"]),
        (lambda x: [x, x], ["result0", "result1"]),
        (lambda x: {"b": x, "a": x}, ["b", "a"]),
        (lambda x: OrderedDict(z=x), ["z"]),
        (lambda x: (), []),
    ],
)
def test_outputs_are_named(make: Callable[[Tensor], Any], names: list[str]) -> None:
    assert list(record(lambda ctx, x: make(x), X).outputs) == names


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda x: None,
            r"record\(wrong\): output 'result' is None, not a recorded value of this context: return tensors",
        ),
        (lambda x: 1.0, "output 'result' is 1.0"),
        (lambda x: "x", "output 'result0' is 'x'"),
        (lambda x: np.ones(2), "output 'result' is array"),
        (lambda x: (x, None), "output 'result1' is None"),
        (lambda x: {"y": [x]}, r"output 'y' is \[Value"),
        (lambda x: EagerExecutionContext().ops.ones((2,), "f32"), "output 'result' is EagerTensor"),
        (lambda x: {0: x}, "an output is called 0: return a mapping of strings to tensors"),
    ],
)
def test_what_is_no_output(make: Callable[[Tensor], Any], message: str) -> None:
    def wrong(ctx: ExecutionContext, x: Tensor) -> Any:
        return make(x)

    with pytest.raises(RecordingError, match=message):
        record(wrong, X)


def test_an_output_of_another_recording() -> None:
    other = GraphExecutionContext()
    with other.recording():
        foreign = other.placeholder("foreign", X)
    with pytest.raises(GraphError, match=r"graph 'f' uses Value\(f32\[2,3\] of placeholder"):
        record(lambda ctx, x: foreign, X, name="f")


@pytest.mark.parametrize(
    ("fn", "specs", "names", "message"),
    [
        (added, (X,), None, r"record\(added\): ctx and the 1 specs do not fit: missing a required argument: 'right'"),
        (added, (X, Y, Y), None, r"record\(added\): ctx and the 3 specs do not fit: too many positional"),
        (added, (X, Y), ("a",), r"record\(added\): 2 specs for the arguments \('a',\): give one for each"),
        (added, (X, Y), ("a", "a"), "placeholder 'a' at .*: the recording has an input of that name already"),
    ],
)
def test_specs_that_do_not_fit(
    fn: Callable[..., Any], specs: tuple[TensorSpec, ...], names: tuple[str, ...] | None, message: str
) -> None:
    with pytest.raises(RecordingError, match=message):
        record(fn, *specs, input_names=names)


def test_an_error_of_the_function_comes_through() -> None:
    def failing(ctx: ExecutionContext, x: Tensor) -> Tensor:
        raise ZeroDivisionError("of the user")

    with pytest.raises(ZeroDivisionError, match="of the user"):
        record(failing, X)


def test_record_verifies_what_it_gives() -> None:
    graph: ComputeGraph = record(added, X, Y)
    verify(graph)


class Listening:
    """A sink that writes down what it hears of a whole recording, and makes a count of it."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def begin(self, name: str, inputs: Mapping[str, Value]) -> None:
        self.heard.append(f"begin {name}({', '.join(inputs)})")

    def node(self, node: Node) -> None:
        self.heard.append(node.op.name)

    def open_block(self, name: str) -> None:
        self.heard.append(f"<{name}>")

    def close_block(self, name: str) -> None:
        self.heard.append(f"</{name}>")

    def end(self, outputs: Mapping[str, Value]) -> int:
        self.heard.append(f"end {', '.join(outputs)}")
        return len(self.heard)


def in_a_block(ctx: ExecutionContext, x: Tensor) -> Tensor:
    with ctx.block("a"):
        return ctx.ops.exp(x)


def test_a_sink_hears_the_whole_recording_and_makes_the_result() -> None:
    sink = Listening()
    assert record(in_a_block, X, sink=sink, name="f") == 5
    assert sink.heard == ["begin f(x)", "<a>", "exp", "</a>", "end result"]


def test_a_sink_hears_no_end_of_a_recording_that_failed() -> None:
    sink = Listening()
    with pytest.raises(RecordingError, match="output 'result' is None"):
        record(lambda ctx, x: None, X, sink=sink, name="f")
    assert sink.heard == ["begin f(x)"]
