"""Operands that are no data: the same error eagerly and recorded, which names the cause."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from compile_dag import GraphExecutionContext, record
from lang_core import (
    EagerExecutionContext,
    ExecutionContext,
    Module,
    OperatorError,
    OpError,
    Parameter,
    Tensor,
    TensorSpec,
    TraceEscapeError,
)

X = np.ones((2, 3), np.float32)
SPEC = TensorSpec((2, 3), "f32")


class Model(Module):
    def __init__(self, call: Callable[..., Any]) -> None:
        self.weight = Parameter((2, 3))
        self.inner = [Module()]
        self._call = call

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Any:
        return self._call(ctx, x, self)


# Calls of ctx.ops, and what the error says.
CALLS: dict[str, tuple[Callable[[Any, Any, Any], Any], str]] = {
    "parameter": (lambda ctx, x, m: ctx.ops.add(x, m.weight), "read the weight with ctx.parameter"),
    "parameter first": (lambda ctx, x, m: ctx.ops.add(m.weight, x), "read the weight with ctx.parameter"),
    "parameter alone": (lambda ctx, x, m: ctx.ops.exp(m.weight), "read the weight with ctx.parameter"),
    "parameter and number": (lambda ctx, x, m: ctx.ops.mul(0.5, m.weight), "read the weight with ctx.parameter"),
    "parameter of linear": (lambda ctx, x, m: ctx.ops.linear(x, m.weight), "read the weight with ctx.parameter"),
    "parameter of softmax": (lambda ctx, x, m: ctx.ops.softmax(m.weight), "read the weight with ctx.parameter"),
    "parameter in a list": (lambda ctx, x, m: ctx.ops.concat([x, m.weight], 0), "read the weight with ctx.parameter"),
    "module": (lambda ctx, x, m: ctx.ops.add(x, m.inner[0]), "inner.0 is a module: call it with the context"),
    "spec": (lambda ctx, x, m: ctx.ops.add(x, m.weight.spec), "f32[2,3] is a spec without a value"),
    "list": (lambda ctx, x, m: ctx.ops.add(x, [1.0, 2.0]), "a list of float is not a tensor"),
    "list of tensors": (lambda ctx, x, m: ctx.ops.exp([x, x]), "is not a tensor"),
    "none": (lambda ctx, x, m: ctx.ops.add(x, None), "None of type NoneType is not a tensor"),
    "string": (lambda ctx, x, m: ctx.ops.add(x, "1"), "'1' of type str is not a tensor"),
    "function": (lambda ctx, x, m: ctx.ops.add(x, ctx.parameter), "is not a tensor"),
    "array for a parameter": (lambda ctx, x, m: ctx.parameter(X), "ctx.parameter: expected a Parameter; found"),
    "string for a parameter": (lambda ctx, x, m: ctx.parameter("weight"), "ctx.parameter: expected a Parameter"),
    "no context": (lambda ctx, x, m: m.inner[0](x), "Module: expected a context as the first argument"),
    "operator": (lambda ctx, x, m: 0.5 * x, "use ctx.ops.mul(0.5, x)"),
    "operator of a parameter": (
        lambda ctx, x, m: 0.5 * m.weight,
        "read it, x = ctx.parameter(..), and use ctx.ops.mul",
    ),
    "array and tensor": (lambda ctx, x, m: X + x, "use ctx.ops.add"),
    "tensors": (lambda ctx, x, m: x @ x, "use ctx.ops.linear"),
    "subscript": (lambda ctx, x, m: x[0], "use ctx.ops.slice"),
    "comparison": (lambda ctx, x, m: x < 1, "use ctx.ops.less(x, 1)"),
    "length": (lambda ctx, x, m: len(x), "x.shape[0]"),
    "loop": (lambda ctx, x, m: list(x), "ctx.ops.split"),
    "attribute": (lambda ctx, x, m: x.T, "ctx.ops.transpose"),
    "function of NumPy": (lambda ctx, x, m: np.tanh(x), "use ctx.ops.tanh"),
    "sum of NumPy": (lambda ctx, x, m: np.sum(x), "use ctx.ops.sum"),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_error_is_one_eagerly_and_recorded(name: str) -> None:
    call, says = CALLS[name]
    kinds = set()
    for run in (
        lambda: Model(call)(EagerExecutionContext(), X),
        lambda: Model(call)(GraphExecutionContext(), X),
        lambda: record(Model(call), SPEC),
    ):
        with pytest.raises(OpError) as caught:
            run()
        assert says in str(caught.value)
        assert "make it an input or a Parameter" not in str(caught.value)
        kinds.add(type(caught.value))
    assert len(kinds) == 1


def test_arrays_still_ask_to_be_made_a_parameter() -> None:
    with pytest.raises(TraceEscapeError, match="make it an input or a Parameter"):
        record(Model(lambda ctx, x, m: ctx.ops.add(x, X)), SPEC)


def test_an_operator_on_a_recorded_value_says_where_it_was_made() -> None:
    with pytest.raises(
        OperatorError, match=r"\* is not defined for a tensor \(f32\[2,3\], the recorded result of tanh"
    ):
        record(Model(lambda ctx, x, m: ctx.ops.tanh(x) * 2), SPEC)


def test_a_recording_context_that_does_not_record_admits_arrays() -> None:
    class Fast(Module):
        def forward(self, ctx: ExecutionContext, x: Tensor) -> Any:
            return ctx.ops.tanh(x) if ctx.isRecording else np.tanh(x.numpy())

    ctx = GraphExecutionContext()
    assert Fast()(ctx, X).numpy().tobytes() == np.tanh(X).tobytes()
    assert [node.op.name for node in record(Fast(), SPEC).nodes] == ["tanh"]
    with ctx.recording(), pytest.raises(TraceEscapeError, match="computed outside the recording"):
        Fast()(ctx, X)
