"""Packed weights are not trained, nor is anything before them: that is said, and no gradient is 0 by mistake."""

import numpy as np
import pytest

from compile_dag import record
from compile_dag.gradient import gradient, value_and_gradient
from lang_core import EagerExecutionContext, ExecutionContext, GraphError, Tensor, TensorSpec, encoding_named
from tests.gradients import _tiny
from transformer_core import pack_weights
from transformer_core.models import DecoderLM

_ROUNDED = (
    r"no gradient goes through the op 'packed_linear' \(at .*_logits\.py:\d+\): what packed weights are "
    "multiplied with is rounded to integers: train the model unpacked"
)


def _packed() -> DecoderLM:
    made = _tiny.model(hidden_size=64, intermediate_size=96, num_attention_heads=4)
    pack_weights(made, encoding_named("q8_0"), made.dtype)
    return made


def _loss(made: DecoderLM, ctx: ExecutionContext, ids: Tensor) -> Tensor:
    return ctx.ops.mean(made(ctx, ids))


def test_what_comes_before_a_packed_product() -> None:
    """Norms are not packed; their gradient would have to go through what is."""
    made = _packed()
    recorded = record(lambda ctx, ids: {"loss": _loss(made, ctx, ids)}, TensorSpec((2, 5), "i32"), input_names=["ids"])
    for path in ("model.norm.weight", "model.layers.1.input_layernorm.weight"):
        with pytest.raises(GraphError, match=_ROUNDED):
            gradient(recorded, "loss", [path])


def test_packed_weights_themselves() -> None:
    made = _packed()
    arrays = {
        path: np.zeros(parameter.stored_spec.shape, parameter.stored_spec.dtype.numpy)
        for path, parameter in made.named_parameters()
    }
    ctx = EagerExecutionContext()

    def run(ctx: ExecutionContext, parameters: dict[str, Tensor], ids: Tensor) -> Tensor:
        with ctx.parameters_from(parameters):
            return _loss(made, ctx, ids)

    ids = ctx.constant(np.ones((2, 5), np.int32))
    with pytest.raises(GraphError, match=r"it is i8\[19,68\]: only floating tensors have one"):
        value_and_gradient(run)(ctx, {path: ctx.constant(array) for path, array in arrays.items()}, ids)


def test_what_comes_after_packed_products_has_its_gradient() -> None:
    """Compares gradients of the logits themselves, where packed products are not on the way."""
    made = _packed()

    def fn(ctx: ExecutionContext, ids: Tensor, scale: Tensor) -> dict[str, Tensor]:
        return {"loss": ctx.ops.mean(ctx.ops.mul(made(ctx, ids), scale))}

    recorded = record(fn, TensorSpec((2, 5), "i32"), TensorSpec((19,), "f32"), input_names=["ids", "scale"])
    graph = gradient(recorded, "loss", ["scale"])
    assert "packed_linear" in str(graph)
    assert [name for name in graph.outputs if name.startswith("gradient")] == ["gradient.scale"]
