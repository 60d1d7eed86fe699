"""Gradients of the objectives by JAX against those of compile_dag, and AdamW by optax against that of the ops."""

from typing import Any

import jax
import numpy as np

from compile_dag.gradient import value_and_gradient
from lang_core import EagerExecutionContext, ExecutionContext, Tensor
from run_jax.training import OptimizerOptions, Trainer
from tapeline.finetuning import adapted_modules, adapter_objective, changes_of, first_values, full_objective
from tests.gradients import _tiny
from transformer_core.training import AdamW, Moments, low_rank_linears, weighted_cross_entropy

_WEIGHTS = np.random.default_rng(4).random((_tiny.BATCH, _tiny.SEQUENCE)).astype(np.float32)


def _loss(ctx: ExecutionContext, made: Any, ids: Tensor, weights: Tensor) -> Tensor:
    logits = made(ctx, ctx.ops.slice_axis(ids, 1, 0, _tiny.SEQUENCE))
    return weighted_cross_entropy(ctx, logits, ctx.ops.slice_axis(ids, 1, 1, _tiny.SEQUENCE + 1), weights)


def _compare(mine: Any, theirs: Any) -> None:
    loss, slopes = mine
    wanted, (gradients,) = theirs
    np.testing.assert_allclose(loss, wanted.numpy(), rtol=1e-5)
    assert set(slopes) == set(gradients)
    for path, gradient in gradients.items():
        array = gradient.numpy()
        np.testing.assert_allclose(slopes[path], array, rtol=1e-4, atol=1e-5 * np.abs(array).max(), err_msg=path)


def test_gradients_of_parameters_are_those_of_compile_dag() -> None:
    made, ids, ctx = _tiny.model(), _tiny.token_ids(), EagerExecutionContext()
    arrays = _tiny.weights(made)

    def loss(ctx: ExecutionContext, parameters: Any, ids: Tensor, weights: Tensor) -> Tensor:
        with ctx.parameters_from(parameters):
            return _loss(ctx, made, ids, weights)

    tensors = {path: ctx.constant(array) for path, array in arrays.items()}
    theirs = value_and_gradient(loss)(ctx, tensors, ctx.constant(ids), ctx.constant(_WEIGHTS))
    _compare(jax.jit(jax.value_and_grad(full_objective(made)))(arrays, {}, ids, _WEIGHTS), theirs)


def test_gradients_of_an_adapter_are_those_of_compile_dag() -> None:
    made, ids, ctx = _tiny.model(), _tiny.token_ids(), EagerExecutionContext()
    arrays, modules = _tiny.weights(made), adapted_modules(made, ("q_proj", "up_proj"))
    rng = np.random.default_rng(6)
    factors = {
        key: array + rng.standard_normal(array.shape).astype(np.float32) / 4
        for key, array in first_values(modules, 2, 0).items()
    }

    def loss(ctx: ExecutionContext, factors: Any, ids: Tensor, weights: Tensor) -> Tensor:
        parameters = {path: ctx.constant(array) for path, array in arrays.items()}
        with ctx.parameters_from(parameters), low_rank_linears(ctx, changes_of(modules, factors, 1.5)):
            return _loss(ctx, made, ids, weights)

    tensors = {key: ctx.constant(array) for key, array in factors.items()}
    theirs = value_and_gradient(loss)(ctx, tensors, ctx.constant(ids), ctx.constant(_WEIGHTS))
    objective = adapter_objective(made, modules, 1.5)
    _compare(jax.jit(jax.value_and_grad(objective))(factors, arrays, ids, _WEIGHTS), theirs)


def test_steps_of_optax_are_those_of_the_ops() -> None:
    """The exported training step of tapeline/finetuning/step has the AdamW of ops."""
    rng = np.random.default_rng(8)
    start = {"w": rng.standard_normal((3, 4)).astype(np.float32), "b": np.zeros(4, np.float32)}
    slopes = {path: rng.standard_normal((4, *array.shape)).astype(np.float32) for path, array in start.items()}

    def objective(trainable: Any, frozen: Any, step: Any) -> Any:
        del frozen
        return sum((trainable[path] * jax.numpy.asarray(slopes[path])[step[0]]).sum() for path in start)

    options = OptimizerOptions(4, 0.1, schedule="constant", weight_decay=0.2, beta2=0.95, largest_norm=0.8)
    trainer, ctx = Trainer(objective, options), EagerExecutionContext()
    state, adamw = trainer.start(start), AdamW(beta2=0.95, weight_decay=0.2, largest_norm=0.8)
    weights: dict[str, Tensor] = {path: ctx.constant(array) for path, array in start.items()}
    moments = {path: Moments(ctx.ops.zeros(a.shape, "f32"), ctx.ops.zeros(a.shape, "f32")) for path, a in start.items()}
    for step in range(4):
        state, _ = trainer.step(state, {}, np.array([[step]], np.int32))
        gradients = {path: ctx.constant(slopes[path][step]) for path in start}
        scale, rate = adamw.scale(ctx, gradients), ctx.constant(0.1, "f32")
        for path in start:
            gradient = ctx.ops.mul(gradients[path], scale)
            count = ctx.constant(step + 1, "i32")
            weights[path], moments[path] = adamw.update(ctx, weights[path], gradient, moments[path], rate, count)
    for path, array in trainer.collect(state):
        np.testing.assert_allclose(array, weights[path].numpy(), rtol=1e-5, atol=1e-6)
