"""Pauses of recordings: what is computed in them comes back as an explicit constant alone."""

from typing import Any

import numpy as np
import pytest

from compile_dag import GraphExecutionContext, Tape
from lang_core import RecordingError, TraceEscapeError

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def ops_of(tape: Tape) -> list[str]:
    return [node.op.name for node in tape.nodes]


def test_a_paused_recording_gets_nothing_and_takes_back_constants_alone() -> None:
    ctx = GraphExecutionContext()
    with ctx.recording() as tape:
        x = ctx.ops.placeholder("x", (2, 3), "f32")
        with tape.paused():
            assert not ctx.isRecording
            y = ctx.ops.exp(X)
            np.testing.assert_array_equal(y.numpy(), np.exp(X))
            with pytest.raises(RecordingError, match=r"exp .*belongs to a recording that is paused: compute with"):
                ctx.ops.exp(x)
        assert ctx.isRecording
        with pytest.raises(TraceEscapeError, match=r"add .*a tensor with data, f32\[2,3\], reached a recorded op"):
            ctx.ops.add(x, y)
        z = ctx.ops.add(x, ctx.ops.constant(y))
    assert ops_of(tape) == ["constant", "add"]
    graph = tape.to_compute_graph({"z": z})
    np.testing.assert_array_equal(graph.nodes[0].attributes[0].array, np.exp(X))


def test_pauses_and_recordings_nest() -> None:
    ctx = GraphExecutionContext()
    with ctx.recording(include_nested=True) as outer:
        x = ctx.ops.placeholder("x", (), "f32")
        with ctx.recording() as inner:
            with pytest.raises(RecordingError, match=r"paused\(\): another recording is open inside: pause that one"):
                outer.paused().__enter__()
            with inner.paused(), inner.paused():
                assert not ctx.isRecording
                with ctx.recording() as apart:
                    assert ctx.isRecording
                    ctx.ops.negate(ctx.ops.placeholder("y", (), "f32"))
                assert not ctx.isRecording
            ctx.ops.exp(x)
        with pytest.raises(ZeroDivisionError), outer.paused():
            raise ZeroDivisionError
        with ctx.block("a"):
            with ctx.paused(), ctx.block("b"):
                ctx.ops.exp(1.0)
            ctx.ops.tanh(x)
    assert (ops_of(outer), ops_of(inner), ops_of(apart)) == (["exp", "tanh"], ["exp"], ["negate"])
    assert [node.block for node in outer.nodes] == ["", "a"]
    with pytest.raises(RecordingError, match=r"paused\(\): the recording is not open in this thread or task"):
        outer.paused().__enter__()
    with pytest.raises(RecordingError, match=r"paused\(\): no recording is open"):
        ctx.paused().__enter__()


def test_a_loops_body_may_pause_the_recording_around() -> None:
    ctx = GraphExecutionContext()
    tables: list[Any] = []

    def body(y: Any) -> Any:
        with tape.paused():
            tables.append(ctx.ops.exp(X))
        return (ctx.ops.add(y, ctx.ops.constant(tables[0])),)

    with ctx.recording() as tape:
        x = ctx.ops.placeholder("x", (2, 3), "f32")
        ctx.ops.while_loop(lambda y: ctx.ops.any(ctx.ops.less(y, 9.0)), body, (x,))
    assert ops_of(tape) == ["while"]
