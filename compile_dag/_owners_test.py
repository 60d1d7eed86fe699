"""Recordings belong to the thread or task that opened them; outside of them, and while they are paused, ops compute."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from compile_dag import GraphExecutionContext, Tape, Value
from lang_core import (
    CheckpointError,
    EagerExecutionContext,
    EagerTensor,
    MappingWeights,
    Module,
    OpError,
    Parameter,
    RecordingError,
    TagSelection,
    TapelineError,
    TraceEscapeError,
)

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def ops_of(tape: Tape) -> list[str]:
    return [node.op.name for node in tape.nodes]


def in_thread(function: Callable[[], Any]) -> Any:
    """Calls a function in another thread; returns what it returns or raises."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(function())
        except TapelineError as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return results[0]


def test_another_thread_does_not_record() -> None:
    ctx = GraphExecutionContext()
    with ctx.recording() as tape:
        ctx.ops.exp(ctx.ops.placeholder("x", (2, 3), "f32"))
        copied = contextvars.copy_context()
        for run in (lambda function: function(), copied.run):  # a copied context does not make it the owner
            recording, result = in_thread(lambda run=run: run(lambda: (ctx.isRecording, ctx.ops.exp(X))))
            assert not recording
            assert isinstance(result, EagerTensor)
            np.testing.assert_array_equal(result.numpy(), np.exp(X))
        assert ctx.isRecording
    assert ops_of(tape) == ["exp"]


def test_threads_record_side_by_side_on_one_context() -> None:
    ctx, barrier = GraphExecutionContext(), threading.Barrier(3)

    class Part(Module):
        def forward(self, ctx: Any, op: str) -> Any:
            x = ctx.ops.placeholder("x", (2, 3), "f32")
            for _ in range(200):
                barrier.wait()
                x = getattr(ctx.ops, op)(x)
            return x

    class Model(Module):
        def __init__(self, op: str) -> None:
            setattr(self, op, Part())

    def run(op: str) -> tuple[Tape, Any]:
        with ctx.recording() as tape:
            return tape, getattr(Model(op), op)(ctx, op)

    results: dict[str, tuple[Tape, Any]] = {}
    names = ("exp", "negate", "tanh")
    threads = [threading.Thread(target=lambda op=op: results.update({op: run(op)})) for op in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for op in names:
        tape, result = results[op]
        assert ops_of(tape) == [op] * 200
        assert {node.path for node in tape.nodes} == {op}
        assert [value.number for node in tape.nodes for value in node.results] == list(range(1, 201))
        assert len(tape.to_compute_graph({"y": result}).nodes) == 200


def test_a_value_of_another_threads_recording_is_refused() -> None:
    ctx = GraphExecutionContext()
    with ctx.recording() as tape:
        x = ctx.ops.placeholder("x", (2, 3), "f32")
        used = in_thread(lambda: ctx.ops.exp(x))
        assert isinstance(used, RecordingError)
        message = r"exp .* belongs to a recording that another thread or task has open: a recording takes the ops of"
        with pytest.raises(RecordingError, match=message):
            raise used

        def recorded() -> Any:
            with ctx.recording():
                return ctx.ops.add(ctx.ops.placeholder("y", (2, 3), "f32"), x)

        with pytest.raises(RecordingError, match="that another thread or task has open"):
            raise in_thread(recorded)

        def paused() -> None:
            with tape.paused():
                pass

        with pytest.raises(RecordingError, match=r"paused\(\): the recording is not open in this thread or task"):
            raise in_thread(paused)
    assert ops_of(tape) == []


def test_tasks_have_recordings_of_their_own() -> None:
    ctx = GraphExecutionContext()

    async def trace(op: str) -> Tape:
        with ctx.recording() as tape:
            x = ctx.ops.placeholder("x", (2, 3), "f32")
            for _ in range(5):
                x = getattr(ctx.ops, op)(x)
                await asyncio.sleep(0)
        return tape

    async def infer() -> list[bool]:
        recording = []
        for _ in range(5):
            recording.append(ctx.isRecording)
            np.testing.assert_array_equal(ctx.ops.exp(X).numpy(), np.exp(X))
            await asyncio.sleep(0)
        return recording

    async def parent() -> tuple[Tape, list[bool]]:
        with ctx.recording() as tape:
            child = await asyncio.create_task(infer())  # it inherits the context variables, and not the recording
            ctx.ops.placeholder("x", (2, 3), "f32")
        return tape, child

    async def main() -> Any:
        return await asyncio.gather(trace("exp"), trace("negate"), infer(), parent())

    first, second, recording, (tape, child) = asyncio.run(main())
    assert (ops_of(first), ops_of(second)) == (["exp"] * 5, ["negate"] * 5)
    assert recording == child == [False] * 5
    assert list(tape.inputs) == ["x"]
    assert not ctx.isRecording


def test_parameters_and_substitutes_belong_to_a_thread() -> None:
    weights = MappingWeights({"w": X})
    ctx = EagerExecutionContext(weights)

    class Model(Module):
        def __init__(self) -> None:
            self.w = Parameter((2, 3))

        def forward(self, ctx: Any) -> Any:
            return ctx.ops.silu(ctx.parameter(self.w))

    model = Model()
    with ctx.parameters_from({"w": ctx.constant(X + 1)}), ctx.substituting({"silu": lambda body: lambda x: x}):
        np.testing.assert_array_equal(model(ctx).numpy(), X + 1)
        result = in_thread(lambda: model(ctx))
        np.testing.assert_array_equal(result.numpy(), ctx.ops.mul(X, ctx.ops.logistic(X)).numpy())


class Scale(Module):
    def __init__(self) -> None:
        self.weight = Parameter((3,))

    def forward(self, ctx: Any, x: Any) -> Any:
        with ctx.block("scale"):
            y = ctx.tag(ctx.ops.rms_norm(ctx.ops.add(x, 1.0), ctx.parameter(self.weight)), "normed")
            _, y = ctx.ops.while_loop(
                lambda i, y: ctx.ops.less(i, 2),
                lambda i, y: (ctx.ops.add(i, 1), ctx.ops.exp(y)),
                (ctx.ops.constant(0), y),
            )
            return ctx.ops.cond(
                ctx.ops.any(ctx.ops.less(y, 0.0)), lambda y: (y,), lambda y: (ctx.ops.negate(y),), (y,)
            )[0]


def test_one_context_serves_inference_and_tracing() -> None:
    weights = MappingWeights({"weight": np.array([1, 2, 3], np.float32)})
    shown: dict[str, Any] = {}
    eager = EagerExecutionContext(weights, {"x": X}, tag_sink=shown.__setitem__)
    ctx = GraphExecutionContext(TagSelection(("*",)), eager=eager)
    model = Scale()
    expected = model(EagerExecutionContext(weights), X).numpy()
    for _ in range(2):
        assert not ctx.isRecording
        np.testing.assert_array_equal(model(ctx, ctx.ops.placeholder("x", (2, 3), "f32")).numpy(), expected)
        assert list(shown) == ["normed"]
        with ctx.recording() as tape:
            result = model(ctx, ctx.ops.placeholder("x", (2, 3), "f32"))
        assert isinstance(result, Value)
        assert {"tag", "parameter", "while", "cond"} < set(ops_of(tape))
    with pytest.raises(OpError, match=r"add\(f32\[2,3\], f32\[2\]\): add_c1.*\(at part\)"):
        type("Bad", (Module,), {"_name": "part", "forward": lambda self, ctx: ctx.ops.add(X, X[:, 0])})()(ctx)


def test_outside_of_recordings_the_default_context_is_numpys() -> None:
    ctx = GraphExecutionContext()
    np.testing.assert_array_equal(ctx.ops.add(X, 1).numpy(), X + 1)
    assert float(ctx.ops.constant(2.5)) == 2.5
    assert not ctx.shows("x")
    with pytest.raises(CheckpointError, match="this context has no weights"):
        ctx.parameter(Parameter((3,)))
    with pytest.raises(OpError, match="an eager context needs its data; inputs given: none"):
        ctx.ops.placeholder("x", (2, 3), "f32")


def test_recorded_values_do_not_compute() -> None:
    ctx = GraphExecutionContext()
    with ctx.recording():
        x = ctx.ops.placeholder("x", (2, 3), "f32")
    with pytest.raises(RecordingError, match=r"exp .*belongs to a recording that has ended"):
        ctx.ops.exp(x)
    with pytest.raises(TraceEscapeError, match="a recorded value has no data"):
        ctx.ops.constant(x)
    with pytest.raises(RecordingError, match=r"cond .*belongs to a recording that has ended"):
        ctx.ops.cond(x, lambda: (x,), lambda: (x,), ())


def test_a_generator_that_holds_a_recording_leaves_others_alone() -> None:
    ctx = GraphExecutionContext()

    def held() -> Any:
        with ctx.recording() as tape:
            yield tape

    generator = held()
    tape = next(generator)
    assert in_thread(lambda: ctx.isRecording) is False
    assert ctx.isRecording
    in_thread(generator.close)  # ends elsewhere
    assert tape.is_closed
    assert not ctx.isRecording
    with ctx.recording():
        assert ctx.isRecording
    assert not ctx.isRecording
