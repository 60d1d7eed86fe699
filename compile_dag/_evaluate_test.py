import gc
import re
import weakref
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given

from compile_dag import ComputeGraph, GraphExecutionContext, evaluate, record
from compile_dag.testing import DRAWN, INPUTS, PROGRAMS, Program, eager, input_tensors, same
from lang_core import EagerExecutionContext, EagerTensor, ExecutionContext, GraphError, Module, Tensor, TensorSpec

F32 = TensorSpec((2, 3), "f32")


def recorded(program: Program) -> ComputeGraph:
    return record(program, *INPUTS.values(), input_names=list(INPUTS), name="program")


def rerecorded(graph: ComputeGraph) -> ComputeGraph:
    ctx = GraphExecutionContext()
    with ctx.recording() as tape:
        outputs = evaluate(graph, ctx, {name: ctx.placeholder(name, v.spec) for name, v in graph.inputs.items()})
    return tape.to_compute_graph(outputs, graph.name)  # pyright: ignore[reportArgumentType]


def stretches(graph: ComputeGraph) -> list[tuple[str, int]]:
    """The name of each uninterrupted stretch of a block, and how many nodes stand in it."""
    groups = groupby(graph.nodes, lambda node: node.stretch)
    return [(stretch.block, sum(1 for _ in nodes)) for stretch, nodes in groups]


@DRAWN
@given(program=PROGRAMS)
def test_a_recorded_program_computes_what_it_computes_eagerly(program: Program) -> None:
    ctx = eager()
    inputs = input_tensors(ctx)
    assert same(evaluate(recorded(program), ctx, inputs), program(ctx, *inputs.values()))


@DRAWN
@given(program=PROGRAMS)
def test_recording_a_graph_anew_gives_the_same_graph(program: Program) -> None:
    graph = recorded(program)
    again = rerecorded(graph)
    assert str(again) == str(graph)
    assert stretches(again) == stretches(graph)


@DRAWN
@given(program=PROGRAMS)
def test_recording_is_deterministic(program: Program) -> None:
    assert str(recorded(program)) == str(recorded(program))


def negated(ctx: ExecutionContext, first: Tensor, second: Tensor) -> dict[str, Tensor]:
    return {"y": ctx.ops.sub(ctx.ops.negate(first), second)}


@pytest.mark.parametrize(
    ("given_specs", "message"),
    [
        ({"first": F32}, r"graph 'negated': input 'second' \(f32\[2,3\]\) is missing"),
        ({"first": F32, "secnd": F32}, "has no input 'secnd'; did you mean 'second'"),
        ({"first": F32, "second": TensorSpec((3, 2), "f32")}, r"input 'second' is f32\[3,2\], wanted f32\[2,3\]"),
        ({"first": F32, "second": TensorSpec((2, 3), "f16")}, r"input 'second' is f16\[2,3\], wanted f32\[2,3\]"),
    ],
)
def test_inputs_that_do_not_fit(given_specs: dict[str, TensorSpec], message: str) -> None:
    ctx = EagerExecutionContext()
    inputs = {name: ctx.ops.zeros(spec.shape, spec.dtype) for name, spec in given_specs.items()}
    with pytest.raises(GraphError, match=message):
        evaluate(record(negated, F32, F32), ctx, inputs)


def test_an_array_is_no_input() -> None:
    array = np.zeros((2, 3), np.float32)
    with pytest.raises(GraphError, match=r"input 'first' is of type ndarray: make it with ctx.constant"):
        evaluate(record(negated, F32, F32), EagerExecutionContext(), {"first": array, "second": array})  # pyright: ignore[reportArgumentType]


class Watching(EagerExecutionContext):
    """Notes how many of the tensors it made are alive at each op."""

    def __init__(self) -> None:
        super().__init__()
        self.arrays: list[weakref.ref[np.ndarray]] = []
        self.most = 0
        self.seen: list[tuple[str, str]] = []
        self.now = ""

    def apply(self, op, inputs, attributes=()):
        self.seen.append((self.module_path, self.now))
        results = super().apply(op, inputs, attributes)
        self.arrays += [weakref.ref(result.numpy()) for result in results]
        self.most = max(self.most, sum(array() is not None for array in self.arrays))
        return results

    def block(self, name: str):
        self.now = name
        return super().block(name)


def test_a_value_is_dropped_after_its_last_use() -> None:
    def chain(ctx: ExecutionContext, x: Tensor) -> Tensor:
        for _ in range(50):
            ctx.ops.exp(x)  # of no use to anybody
            x = ctx.ops.negate(x)
        return x

    ctx = Watching()
    gc.disable()
    try:
        result = evaluate(record(chain, F32), ctx, {"x": ctx.constant(np.ones((2, 3), np.float32))})["result"]
    finally:
        gc.enable()
    assert isinstance(result, EagerTensor)
    # The operand, the result, and one that the caller of apply still holds.
    assert ctx.most <= 3


def test_nodes_run_under_their_module_path_and_in_their_block() -> None:
    class Layer(Module):
        def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
            with ctx.block("layers.0"):
                return ctx.ops.exp(x)

    class Model(Module):
        def __init__(self) -> None:
            self.layer = Layer()

        def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
            return ctx.ops.negate(self.layer(ctx, x))

    ctx = Watching()
    ctx.module_path = "before"
    evaluate(record(Model(), F32, input_names=["x"]), ctx, {"x": ctx.ops.zeros((2, 3), "f32")})
    assert ctx.seen[1:] == [("layer", "layers.0"), ("", "layers.0")]
    assert ctx.module_path == "before"


def test_the_module_path_is_restored_after_an_error() -> None:
    class Model(Module):
        def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
            return ctx.ops.exp(x)

    class Failing(EagerExecutionContext):
        def apply(self, op, inputs, attributes=()):
            raise ZeroDivisionError

    ctx = Failing()
    ctx.module_path = "before"
    with pytest.raises(ZeroDivisionError):
        evaluate(record(Model(), F32, input_names=["x"]), ctx, {"x": ctx.constant(np.ones((2, 3), np.float32))})
    assert ctx.module_path == "before"


def test_a_parameter_op_has_no_data_of_its_own() -> None:
    graph = recorded(Program(((6, 0, 0, 0),), (0,)))
    (parameter,) = (node for node in graph.nodes if node.op.name == "parameter")
    with pytest.raises(GraphError, match=re.escape("'inner.scale' (f32[3]) has no data of its own")):
        parameter.op.eager_rule(*parameter.attributes)
