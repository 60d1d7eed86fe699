"""The gradient of a whole decoder's loss against jax.grad of another implementation."""

import numpy as np
import pytest

from compile_dag import evaluate, record, verify
from compile_dag.gradient import gradient, value_and_gradient
from lang_core import EagerExecutionContext, ExecutionContext, Tensor, TensorSpec
from tests.gradients import _tiny
from transformer_core.training import cross_entropy


def loss_of(made, parameters: dict[str, Tensor], ctx: ExecutionContext, ids: Tensor) -> Tensor:
    sequence = ids.shape[1] - 1
    with ctx.parameters_from(parameters):
        logits = made(ctx, ctx.ops.slice_axis(ids, 1, 0, sequence))
    return cross_entropy(ctx, logits, ctx.ops.slice_axis(ids, 1, 1, sequence + 1))


@pytest.mark.parametrize("tied", [False, True])
def test_a_tiny_llama(tied: bool) -> None:
    made = _tiny.model(tie_word_embeddings=tied)
    arrays, ids = _tiny.weights(made), _tiny.token_ids()
    wanted_loss, wanted = _tiny.jax_value_and_gradients(arrays, ids)
    ctx = EagerExecutionContext()
    run = value_and_gradient(lambda ctx, parameters, ids: loss_of(made, parameters, ctx, ids))
    loss, (results,) = run(ctx, {path: ctx.constant(array) for path, array in arrays.items()}, ctx.constant(ids))
    assert float(loss) == pytest.approx(wanted_loss, rel=1e-5)
    assert set(results) == set(wanted)
    for path, slope in wanted.items():
        np.testing.assert_allclose(
            results[path].numpy(), slope, rtol=1e-4, atol=1e-5 * np.abs(slope).max(), err_msg=path
        )


def test_a_graph_of_parameters() -> None:
    """Weights that are read as ever, and differentiated by path; those of a tied embedding at both places."""
    made = _tiny.model(tie_word_embeddings=True)
    arrays, ids = _tiny.weights(made), _tiny.token_ids()
    _, wanted = _tiny.jax_value_and_gradients(arrays, ids)
    spec = TensorSpec(ids.shape, "i32")
    recorded = record(lambda ctx, ids: {"loss": loss_of(made, {}, ctx, ids)}, spec, input_names=["ids"])
    paths = ["model.embed_tokens.weight", "model.layers.1.self_attn.k_proj.weight", "model.norm.weight"]
    graph = gradient(recorded, "loss", paths)
    verify(graph)
    ctx = EagerExecutionContext()
    with ctx.parameters_from({path: ctx.constant(array) for path, array in arrays.items()}):
        results = evaluate(graph, ctx, {"ids": ctx.constant(ids)})
    for path in paths:
        np.testing.assert_allclose(
            results[f"gradient.{path}"].numpy(), wanted[path], rtol=1e-4, atol=1e-5 * np.abs(wanted[path]).max()
        )
