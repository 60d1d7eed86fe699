"""Packed weights are not trained. What is before them has its gradient, unless activations are rounded to 8 bits."""

import numpy as np
import pytest

from compile_dag import record
from compile_dag.gradient import gradient, value_and_gradient
from lang_core import (
    Activations,
    EagerExecutionContext,
    ExecutionContext,
    GraphError,
    MappingWeights,
    Tensor,
    TensorSpec,
    encoding_named,
)
from tests.gradients import _tiny
from transformer_core import pack_weights
from transformer_core.models import DecoderLM

_ROUNDED = (
    r"no gradient goes through the op 'packed_linear' \(at .*_logits\.py:\d+\): with activations=q8 x is rounded to "
    "integers: take exact activations, or train the model unpacked"
)


def _packed(activations: Activations = "exact") -> DecoderLM:
    made = _tiny.model(hidden_size=64, intermediate_size=96, num_attention_heads=4)
    pack_weights(made, encoding_named("q8_0"), made.dtype, activations)
    return made


def _loss(made: DecoderLM, ctx: ExecutionContext, ids: Tensor) -> Tensor:
    return ctx.ops.mean(made(ctx, ids))


def test_what_comes_before_a_product_with_rounded_activations() -> None:
    """Norms are not packed; their gradient would have to go through what is rounded."""
    made = _packed("q8")
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


def test_what_comes_before_a_packed_product_has_the_gradient_of_the_unpacked_one() -> None:
    """Compares with the same model on the weights that the blocks say."""
    packed, plain = _packed(), _tiny.model(hidden_size=64, intermediate_size=96, num_attention_heads=4)
    rng = np.random.default_rng(3)
    stored, unpacked = {}, {}
    for (path, parameter), (_, whole) in zip(packed.named_parameters(), plain.named_parameters(), strict=True):
        unpacked[path] = rng.standard_normal(whole.spec.shape).astype(np.float32) / 8
        stored[path] = unpacked[path]
        if parameter.encoding is not None:
            stored[path] = parameter.encoding.pack(unpacked[path])
            unpacked[path] = parameter.encoding.unpacked(stored[path])
    paths = ["model.norm.weight", "model.layers.0.input_layernorm.weight"]
    ids = rng.integers(0, 19, (2, 5)).astype(np.int32)
    gradients = []
    for made, weights in ((packed, stored), (plain, unpacked)):

        def run(ctx: ExecutionContext, parameters: dict[str, Tensor], ids: Tensor, made: DecoderLM = made) -> Tensor:
            with ctx.parameters_from(parameters):
                return ctx.ops.mean(ctx.ops.exp(made(ctx, ids)))

        ctx = EagerExecutionContext(MappingWeights(weights))
        parameters = {path: ctx.constant(weights[path]) for path in paths}
        _, (results,) = value_and_gradient(run)(ctx, parameters, ctx.constant(ids))
        gradients.append([results[path].numpy() for path in paths])
    for one, other in zip(*gradients, strict=True):
        assert np.abs(other).max() > 0
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * np.abs(other).max())
