"""The objective of a fine-tuning: a model's loss as a pure function of the trained and the frozen parameters."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lang_core import ExecutionContext, Tensor
from run_jax import jax_function
from tapeline.finetuning._adapter import AdaptedModule, changes_of
from transformer_core.models import DecoderLM
from transformer_core.training import low_rank_linears, weighted_cross_entropy

Objective = Callable[..., Any]


def full_objective(model: DecoderLM) -> Objective:
    """Returns ``(trainable, frozen, token_ids [B, T + 1], weights [B, T])`` to the loss, parameters being trained."""
    loss = jax_function(_loss_of(model, (), 0.0))

    def objective(trainable: Mapping[str, Any], frozen: Mapping[str, Any], token_ids: Any, weights: Any) -> Any:
        return loss({**frozen, **trainable}, {}, token_ids, weights)

    return objective


def adapter_objective(model: DecoderLM, modules: Sequence[AdaptedModule], scale: float) -> Objective:
    """Returns the same with the factors of an adapter being trained; gradients of parameters are not computed."""
    loss = jax_function(_loss_of(model, modules, scale))

    def objective(trainable: Mapping[str, Any], frozen: Mapping[str, Any], token_ids: Any, weights: Any) -> Any:
        return loss(frozen, dict(trainable), token_ids, weights)

    return objective


def _loss_of(model: DecoderLM, modules: Sequence[AdaptedModule], scale: float) -> Callable[..., Tensor]:
    def loss(ctx: ExecutionContext, factors: Mapping[str, Tensor], token_ids: Tensor, weights: Tensor) -> Tensor:
        sequence = weights.shape[1]
        with low_rank_linears(ctx, changes_of(modules, factors, scale)):
            logits = model(ctx, ctx.ops.slice_axis(token_ids, 1, 0, sequence))
        return weighted_cross_entropy(ctx, logits, ctx.ops.slice_axis(token_ids, 1, 1, sequence + 1), weights)

    return loss
