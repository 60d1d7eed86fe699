"""Regions that nest hundreds deep give graphs, text and gradients; a recursion without an end gives a typed error.

The gradients of a nest take time that grows with the square of its depth: 200 deep with TAPELINE_LONG=1 in the
environment, else 80.
"""

import os
import sys
import threading
from typing import Any

import numpy as np
import pytest

from compile_dag import GraphExecutionContext, evaluate, record
from compile_dag.gradient import gradient, value_and_gradient
from lang_core import EagerExecutionContext, RecordingError, TensorSpec

_DEPTH = 200
_DEPTH_OF_GRADIENTS = 200 if os.environ.get("TAPELINE_LONG") else 80
_VECTOR = TensorSpec((2,), "f32")


def _branches(ctx: Any, x: Any, depth: int) -> Any:
    if depth == 0:
        return ctx.ops.add(x, 1.0)
    deep = ctx.ops.greater(ctx.ops.sum(x), float(-depth))
    return ctx.ops.cond(deep, lambda a: (_branches(ctx, a, depth - 1),), lambda a: (ctx.ops.mul(a, 2.0),), (x,))[0]


def _loops(ctx: Any, x: Any, depth: int) -> Any:
    if depth == 0:
        return ctx.ops.mul(x, 2.0)
    once = lambda n, a: (ctx.ops.add(n, 1), _loops(ctx, a, depth - 1))  # noqa: E731
    return ctx.ops.while_loop(lambda n, a: ctx.ops.less(n, 1), once, (ctx.ops.constant(0), x))[1]


@pytest.mark.parametrize("nest", [_branches, _loops])
def test_deep_regions_give_a_graph_that_runs(nest: Any) -> None:
    limit = sys.getrecursionlimit()
    graph = record(lambda ctx, x: nest(ctx, x, _DEPTH), _VECTOR, input_names=["x"])
    eager = EagerExecutionContext()
    x = np.array([1, 2], np.float32)
    (result,) = evaluate(graph, eager, {"x": eager.constant(x)}).values()
    wanted = x + 1 if nest is _branches else x * 2
    np.testing.assert_array_equal(result.numpy(), wanted)
    np.testing.assert_array_equal(nest(eager, eager.constant(x), _DEPTH).numpy(), wanted)
    assert str(graph).count("\n") > _DEPTH
    assert sys.getrecursionlimit() == limit


def test_deep_branches_have_gradients() -> None:
    loss = lambda ctx, x: ctx.ops.sum(_branches(ctx, x, _DEPTH_OF_GRADIENTS))  # noqa: E731
    ctx = EagerExecutionContext()
    _, (slope,) = value_and_gradient(loss)(ctx, ctx.constant(np.ones(2, np.float32)))
    assert slope.numpy().tolist() == [1.0, 1.0]
    graph = gradient(record(loss, _VECTOR, input_names=["x"]), of="result", wrt=["x"])
    assert "gradient.x" in graph.outputs


def test_a_recording_of_ones_own_takes_deep_branches() -> None:
    ctx = GraphExecutionContext()
    with ctx.recording() as tape:
        result = _branches(ctx, ctx.placeholder("x", _VECTOR), _DEPTH)
    assert tape.to_compute_graph({"y": result}, "f").nodes


def test_recordings_in_threads_leave_the_limit_as_it_was() -> None:
    limit, failures = sys.getrecursionlimit(), []

    def run() -> None:
        try:
            record(lambda ctx, x: _branches(ctx, x, 50), _VECTOR, input_names=["x"])
        except BaseException as error:  # noqa: BLE001 - looked at below
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert sys.getrecursionlimit() == limit


def test_a_recursion_without_an_end_is_a_typed_error() -> None:
    def endless(ctx: Any, x: Any) -> Any:
        return ctx.ops.cond(ctx.ops.greater(x, 0.0), lambda a: (endless(ctx, a),), lambda a: (a,), (x,))[0]

    with pytest.raises(RecordingError, match="functions call each other more than 10000 deep"):
        record(endless, TensorSpec((), "f32"), input_names=["x"])
