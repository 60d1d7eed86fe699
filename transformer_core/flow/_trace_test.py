from typing import Any

import numpy as np
import pytest

from lang_core import EagerExecutionContext, OpError, TensorSpec, TraceEscapeError
from transformer_core.flow import CompileProfile, FlowContext, FlowValue, ModelFlow
from transformer_core.flow._trace import SpecContext
from transformer_core.flow._value import Emit
from transformer_core.layers._linear import Linear

PROFILE = CompileProfile.preset("encoder", sequence=3)
X = np.arange(6, dtype=np.float32).reshape(3, 2)


def _twice(flow: FlowContext, x: FlowValue) -> FlowValue:
    """Loops, branches and several results, under specs as under data."""
    ops = flow.ctx.ops
    looped = ops.fori_loop(2, lambda i, v: (ops.add(v, ops.cast(i, "f32")),), (x.tensor,))[0]
    positive = ops.greater(ops.sum(looped), 0.0)
    chosen = ops.cond(positive, lambda: (ops.mul(looped, 2.0),), lambda: (looped,))[0]
    left, right = flow.emit.several("split", flow.value(chosen), (1, 1), axis=1)
    return flow.emit("concat", [right, left], axis=1, spec=x.spec)


def test_specs_go_where_data_goes():
    model = ModelFlow("m").input("x", ("T", 2)).custom("twice", _twice).side_output("side").build(PROFILE)
    actual = {name: tensor.spec for name, tensor in model(EagerExecutionContext(), X).items()}
    assert model.trace().results == actual
    assert model.trace() is model.trace()


def test_a_value_of_a_trace_has_no_data():
    def peek(flow: FlowContext, x: FlowValue) -> FlowValue:
        return flow.emit("mul", x, float(x.tensor.numpy().max()))

    model = ModelFlow("m").input("x", ("T", 2)).custom("peek", peek).build(PROFILE)
    with pytest.raises(TraceEscapeError, match=r"f32\[3,2\], a value without data"):
        model.trace()


@pytest.mark.parametrize(
    ("emit", "message"),
    [
        (lambda emit, x: emit("ad", x, x), "emit 'ad' at the root: no op of this name; did you mean 'pad' or 'add'"),
        (
            lambda emit, x: emit("split", x, (1, 1), axis=1),
            "emit 'split' at the root: it has 2 results: call emit.several",
        ),
        (
            lambda emit, x: emit("exp", x, spec=TensorSpec((3,), "f32")),
            r"emit 'exp' at the root: expected f32\[3\]; found f32",
        ),
        (lambda emit, x: emit("dot_general", x, x, contract=((1,), (0,))), "dot_general"),
    ],
)
def test_emit_holds_ops_to_their_contract(emit: Any, message: str):
    ctx = SpecContext()
    x = FlowValue.of(ctx.placeholder("x", TensorSpec((3, 2), "f32")))
    with pytest.raises(OpError, match=message):
        emit(Emit(ctx), x)


def test_a_branch_of_another_shape_is_refused():
    def wrong(flow: FlowContext, x: FlowValue) -> FlowValue:
        ops = flow.ctx.ops
        return flow.value(ops.cond(ops.constant(True), lambda: (x.tensor,), lambda: (ops.sum(x.tensor),))[0])

    with pytest.raises(OpError, match="cond"):
        ModelFlow("m").input("x", ("T", 2)).custom("wrong", wrong).build(PROFILE).trace()


def test_an_op_that_breaks_its_contract_is_found_with_its_module():
    recipe = ModelFlow("m").input("x", ("T", 2)).include("a", ModelFlow("a").stage("proj", lambda build: Linear(3, 4)))
    with pytest.raises(OpError, match=r"dot_general.* \(at a\.proj\)"):
        recipe.build(PROFILE).trace()
