from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from compile_dag import ComputeGraph, GraphExecutionContext, Tape, Value
from lang_core import (
    EagerExecutionContext,
    ExecutionContext,
    GraphError,
    Module,
    OpError,
    RecordingError,
    Tensor,
    TensorSpec,
)


def ops_of(tape: Tape) -> list[str]:
    return [node.op.name for node in tape.nodes]


def test_a_context_records_only_inside_a_recording() -> None:
    ctx = GraphExecutionContext()
    assert (ctx.isRecording, ctx.is_recording) == (False, False)
    with ctx.recording():
        assert (ctx.isRecording, ctx.is_recording) == (True, True)
        with ctx.recording():
            assert (ctx.isRecording, ctx.is_recording) == (True, True)
        assert (ctx.isRecording, ctx.is_recording) == (True, True)
    assert (ctx.isRecording, ctx.is_recording) == (False, False)
    assert (EagerExecutionContext().isRecording, EagerExecutionContext().is_recording) == (False, False)


def test_a_context_that_knows_of_no_recording_does_not_record() -> None:
    class Minimal(ExecutionContext):
        apply = constant = placeholder = parameter = while_loop = conditional = None  # pyright: ignore[reportAssignmentType]

    assert (Minimal().isRecording, Minimal().is_recording) == (False, False)


def test_a_context_records_again_and_again() -> None:
    ctx = GraphExecutionContext()
    texts = []
    for _ in range(2):
        with ctx.recording() as tape:
            y = ctx.ops.exp(ctx.ops.placeholder("x", (2, 3), "f32"))
        texts.append(str(tape.to_compute_graph({"y": value(y)})))
    assert texts[0] == texts[1]


def test_values_are_numbered_in_recording_order_and_alike_each_time() -> None:
    ctx = GraphExecutionContext()
    numbers = []
    for _ in range(2):
        with ctx.recording() as tape:
            x = ctx.ops.placeholder("x", (2, 3), "f32")
            values, indices = ctx.ops.sort(x, 1)
            ctx.ops.while_loop(lambda y: ctx.ops.any(ctx.ops.less(y, 1.0)), lambda y: (ctx.ops.exp(y),), (values,))
            ctx.ops.negate(indices)
        numbers.append([[value.number for value in node.results] for node in tape.nodes])
        assert tape.inputs["x"].number == 0
    sort, loop, last = numbers[0]
    assert sort == [1, 2]
    assert loop[0] > 3  # the loop's regions have numbers of their own before its results
    assert last == [loop[0] + 1]
    assert numbers[1] == numbers[0]


def test_no_value_of_a_nested_recording_has_the_number_of_one_around() -> None:
    ctx = GraphExecutionContext()
    with ctx.recording() as outer:
        x = ctx.ops.placeholder("x", (2, 3), "f32")
        with ctx.recording() as inner:
            ctx.ops.exp(ctx.ops.placeholder("y", (3,), "f32"))
        ctx.ops.cos(x)
    values = [*outer.inputs.values(), *inner.inputs.values(), inner.nodes[0].results[0], outer.nodes[0].results[0]]
    assert [value.number for value in values] == [0, 1, 2, 3]


@pytest.mark.parametrize("include", [(a, b, c) for a in (False, True) for b in (False, True) for c in (False, True)])
def test_every_tape_around_that_asked_gets_the_ops(include: tuple[bool, bool, bool]) -> None:
    ctx = GraphExecutionContext()
    with ctx.recording(include_nested=include[0]) as outer:
        x = ctx.ops.placeholder("x", (2, 3), "f32")
        with ctx.recording(include_nested=include[1]) as middle:
            ctx.ops.exp(x)
            with ctx.recording(include_nested=include[2]) as inner:
                ctx.ops.sin(x)
            ctx.ops.cos(x)
        ctx.ops.tanh(x)
    assert ops_of(inner) == ["sin"]
    assert ops_of(middle) == (["exp", "sin", "cos"] if include[1] else ["exp", "cos"])
    assert ops_of(outer) == (["exp", "sin", "cos", "tanh"] if include[0] else ["tanh"])


def test_values_of_a_closed_recording_live_on_in_one_that_included_it() -> None:
    ctx = GraphExecutionContext()
    with ctx.recording(include_nested=True) as outer:
        x = ctx.ops.placeholder("x", (2, 3), "f32")
        with ctx.recording(include_nested=True), ctx.recording():
            y = ctx.ops.exp(x)
        z = ctx.ops.negate(y)
    graph = outer.to_compute_graph({"y": value(y), "z": value(z)})
    assert [node.op.name for node in graph.nodes] == ["exp", "negate"]
    with pytest.raises(RecordingError, match=r"belongs to a recording that has ended"), ctx.recording():
        ctx.ops.negate(y)


def test_placeholders_of_a_nested_recording_are_inputs_of_one_that_includes_it() -> None:
    ctx = GraphExecutionContext()
    with ctx.recording(include_nested=True) as outer:
        x = ctx.ops.placeholder("x", (2, 3), "f32")
        with ctx.recording() as inner:
            y = ctx.ops.exp(ctx.ops.placeholder("y", (3,), "f32"))
        z = ctx.ops.add(x, y)
    assert list(inner.to_compute_graph({"y": value(y)}).inputs) == ["y"]
    assert list(outer.to_compute_graph({"z": value(z)}).inputs) == ["x", "y"]


@pytest.mark.parametrize("levels", [1, 2])
def test_values_of_a_closed_recording_are_of_no_use_where_it_was_not_included(levels: int) -> None:
    ctx = GraphExecutionContext()
    with ctx.recording(), ExitStack() as stack:
        x = ctx.ops.placeholder("x", (2, 3), "f32")
        for _ in range(levels):
            stack.enter_context(ctx.recording())
        y = ctx.ops.exp(x)
        stack.close()
        with pytest.raises(RecordingError, match=r"negate \(at the root, .*_context_test.py:\d+\): Value.*has ended"):
            ctx.ops.negate(y)


def test_a_value_of_a_recording_two_levels_in_cannot_be_an_output_of_one_that_was_not_told() -> None:
    ctx = GraphExecutionContext()
    with ctx.recording(include_nested=True) as outer:
        x = ctx.ops.placeholder("x", (2, 3), "f32")
        with ctx.recording() as middle:
            with ctx.recording():
                y = ctx.ops.exp(x)
            with pytest.raises(GraphError, match=r"uses Value\(f32\[2,3\] of exp"):
                middle.to_compute_graph({"y": value(y)})
    assert [node.op.name for node in outer.to_compute_graph({"y": value(y)}).nodes] == ["exp"]


def test_a_value_of_another_context() -> None:
    ctx, other = GraphExecutionContext(), GraphExecutionContext()
    with ctx.recording(), other.recording():
        x = ctx.ops.placeholder("x", (2, 3), "f32")
        with pytest.raises(RecordingError, match="belongs to a recording of another context"):
            other.ops.exp(x)


class Interrupt(BaseException):
    """Exception like KeyboardInterrupt, which no handler of errors sees."""


def leave_by(error: type[BaseException], ctx: GraphExecutionContext, depth: int, tapes: list[Tape]) -> None:
    with ExitStack() as stack:
        for level in range(depth):
            tapes.append(stack.enter_context(ctx.recording()))
            stack.enter_context(ctx.block(f"block{level}"))
        raise error


@pytest.mark.parametrize("error", [RuntimeError, Interrupt, GeneratorExit])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_an_exception_closes_every_recording_it_leaves(depth: int, error: type[BaseException]) -> None:
    ctx = GraphExecutionContext()
    tapes: list[Tape] = []
    with ctx.recording(include_nested=True) as outer:
        x = ctx.ops.placeholder("x", (2, 3), "f32")
        with pytest.raises(error):
            leave_by(error, ctx, depth, tapes)
        ctx.ops.exp(x)
        assert [node.block for node in outer.nodes] == [""]
        assert all(tape.is_closed for tape in tapes)
        assert not outer.is_closed
    assert not ctx.isRecording


def test_an_exception_in_the_outermost_recording_closes_it() -> None:
    ctx = GraphExecutionContext()
    with pytest.raises(ZeroDivisionError), ctx.recording(), ctx.recording():
        raise ZeroDivisionError
    assert not ctx.isRecording


def test_a_recording_closes_those_a_suspended_generator_holds_open_inside() -> None:
    ctx = GraphExecutionContext()

    def suspended() -> Iterator[Tape]:
        with ctx.recording() as tape:
            yield tape

    generator = suspended()
    with ctx.recording() as outer:
        inner = next(generator)
    assert (outer.is_closed, inner.is_closed, ctx.isRecording) == (True, True, False)
    with ctx.recording() as later:
        next(generator, None)
        assert (ctx.isRecording, later.is_closed) == (True, False)


def test_an_exception_restores_the_module_path() -> None:
    class Broken(Module):
        def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
            assert ctx.module_path == "broken"
            return ctx.ops.reshape(x, (7,))

    class Model(Module):
        def __init__(self) -> None:
            self.broken = Broken()

        def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
            return self.broken(ctx, x)

    ctx = GraphExecutionContext()
    with pytest.raises(OpError, match=r"reshape_c1: .* \(at broken, .*_context_test.py:\d+\)"), ctx.recording():
        Model()(ctx, ctx.ops.placeholder("x", (2, 3), "f32"))
    assert (ctx.module_path, ctx.isRecording) == ("", False)


def test_a_placeholder_needs_a_name_of_its_own() -> None:
    ctx = GraphExecutionContext()
    with ctx.recording() as tape:
        ctx.ops.placeholder("x", (2, 3), "f32")
        with pytest.raises(
            RecordingError, match=r"'x' at .*_context_test.py:\d+: .*already, made at .*_context_test.py"
        ):
            ctx.ops.placeholder("x", (2, 3), "f32")
    assert list(tape.inputs) == ["x"]


def test_nodes_say_where_they_come_from() -> None:
    class Model(Module):
        def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
            return ctx.ops.exp(x)

    class Root(Module):
        def __init__(self) -> None:
            self.layers = [Model(), Model()]

    ctx = GraphExecutionContext()
    root = Root()
    with ctx.recording() as tape:
        root.layers[1](ctx, ctx.ops.placeholder("x", (2, 3), "f32"))
    line = Model.forward.__code__.co_firstlineno + 1
    (node,) = tape.nodes
    assert (node.path, node.line) == ("layers.1", f"{__file__}:{line}")
    assert repr(node) == f"<node exp at layers.1, {__file__}:{line}>"


def test_equal_functions_of_two_files_are_told_apart() -> None:
    ctx = GraphExecutionContext()
    source = "def forward(ctx, x):\n    return ctx.ops.exp(x)\n"
    forwards = []
    for file in ("first.py", "second.py"):
        names: dict = {}
        exec(compile(source, file, "exec"), names)  # noqa: S102 - two files with the same text
        forwards.append(names["forward"])
    with ctx.recording() as tape:
        x = ctx.ops.placeholder("x", (2, 3), "f32")
        for forward in forwards:
            forward(ctx, x)
    assert [node.line for node in tape.nodes] == ["first.py:2", "second.py:2"]


def test_an_op_against_its_contract_says_where() -> None:
    ctx = GraphExecutionContext()
    with (
        ctx.recording() as tape,
        pytest.raises(OpError, match=r"add_c1: shapes .* do not broadcast \(at the root, .*_context_test.py:\d+\)"),
    ):
        ctx.ops.add(ctx.ops.placeholder("x", (2, 3), "f32"), ctx.ops.placeholder("y", (4,), "f32"))
    assert ops_of(tape) == []


def value(tensor: Tensor) -> Value:
    assert isinstance(tensor, Value)
    return tensor


def test_a_graph_can_be_made_while_the_recording_goes_on() -> None:
    ctx = GraphExecutionContext()
    with ctx.recording() as tape:
        x = ctx.placeholder("x", TensorSpec((2, 3), "f32"))
        y = ctx.ops.exp(x)
        early: ComputeGraph = tape.to_compute_graph({"y": value(y)}, "early")
        z = ctx.ops.sin(y)
    assert [len(early.nodes), len(tape.to_compute_graph({"z": value(z)}).nodes)] == [1, 2]


def _held(ctx: GraphExecutionContext, include_nested: bool = False) -> Any:
    with ctx.recording(include_nested=include_nested) as tape:
        yield tape


@pytest.mark.parametrize("include_nested", [False, True])
def test_a_generator_that_ends_leaves_a_newer_recording_open(include_nested: bool) -> None:
    ctx = GraphExecutionContext()
    generator = _held(ctx, include_nested=include_nested)
    older = next(generator)
    with ctx.recording() as newer:
        x = ctx.ops.placeholder("x", (2,), "f32")
        generator.close()
        assert older.is_closed
        assert not newer.is_closed
        assert ctx.isRecording
        y = ctx.ops.exp(x)
        with ctx.recording() as inner:
            ctx.ops.placeholder("z", (2,), "f32")
        assert inner.is_closed
        y = ctx.ops.negate(y)
    assert not ctx.isRecording
    assert [node.op.name for node in newer.to_compute_graph({"y": y}).nodes] == ["exp", "negate"]


def test_two_generators_end_in_any_order() -> None:
    for first, second in ((0, 1), (1, 0)):
        ctx = GraphExecutionContext()
        generators = [_held(ctx), _held(ctx)]
        tapes = [next(generator) for generator in generators]
        generators[first].close()
        assert [tape.is_closed for tape in tapes] == [first == 0, first == 1]
        assert ctx.isRecording
        ctx.ops.constant(1.0)
        assert len(tapes[second].nodes) == 1
        generators[second].close()
        assert not ctx.isRecording


def test_a_generators_pause_ends_alone() -> None:
    ctx = GraphExecutionContext()

    def pausing() -> Any:
        with ctx.paused():
            yield

    with ctx.recording() as outer:
        generator = pausing()
        next(generator)
        assert not ctx.isRecording
        with ctx.recording() as newer:
            generator.close()
            assert not newer.is_closed
            ctx.ops.constant(1.0)
        assert ctx.isRecording
        ctx.ops.constant(2.0)
    assert (len(newer.nodes), len(outer.nodes)) == (1, 1)


def test_what_an_outer_recording_holds_inside_ends_with_it() -> None:
    ctx = GraphExecutionContext()
    with ctx.recording() as outer:
        generator = _held(ctx)
        inside = next(generator)
        with ctx.recording() as newer:
            pass
        assert newer.is_closed
    assert outer.is_closed
    assert inside.is_closed
    assert not ctx.isRecording
    generator.close()
