"""Routers of mixtures of experts: scores, groups, and the choice of experts for each token."""

import enum
from dataclasses import dataclass

from lang_core import ConfigError, DType, ExecutionContext, Module, Parameter, Tensor, as_dtype, checked_choices


class Scoring(enum.Enum):
    """Function from a router's logits to scores."""

    SOFTMAX = "softmax"
    """Softmax over all experts (Mixtral, arXiv:2401.04088; Qwen3-MoE)."""
    SIGMOID = "sigmoid"
    """Logistic function of each logit (DeepSeek-V3, arXiv:2412.19437, section 2.1.2)."""
    MIXER = "mixer"
    """Softmax over the experts left whose logits are near the best one's, for one chosen expert after the other
    (SparseMixer-v2, Phi-3.5-MoE, arXiv:2409.12136)."""


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """Choice of experts for each token.

    Attributes:
        experts: E.
        chosen: C, experts per token.
        scoring: function from logits to scores.
        normalized: whether the chosen experts' scores are divided by their sum.
        least_sum: divisor if their sum is less; not used if None.
        eps: added to that sum otherwise.
        scale: factor of the final weights.
        nearness: distance from the best logit, relative to the greater of that and the own size, up to which experts
            are near it.
        corrected: whether a bias is added to the scores that choose, but not to the weights.
        by_logits: whether logits choose, and not their scores (Kolibri).
        softcap: cap of the logits; none if None.
        biased: whether the logits have a bias.
        groups: number of groups of equal size into which the experts are divided.
        chosen_groups: number of groups that a token chooses from: those with the greatest sums of best scores.
        group_best: number of scores in these sums.

    Raises:
        ConfigError: the numbers contradict one another.
    """

    experts: int
    chosen: int
    scoring: Scoring = Scoring.SOFTMAX
    normalized: bool = True
    least_sum: float | None = None
    eps: float = 1e-20
    scale: float = 1.0
    nearness: float = 0.0
    corrected: bool = False
    by_logits: bool = False
    softcap: float | None = None
    biased: bool = False
    groups: int = 1
    chosen_groups: int = 1
    group_best: int = 2

    def __post_init__(self) -> None:
        least = self.group_best
        if self.experts % self.groups or (self.groups > 1 and self.experts // self.groups < least):
            raise ConfigError(
                f"routing: {self.experts} experts do not make {self.groups} equal groups of {least} or more"
            )
        if not 1 <= self.chosen_groups <= self.groups:
            raise ConfigError(f"routing: expected 1 to {self.groups} chosen groups; found {self.chosen_groups}")
        reachable = self.experts // self.groups * self.chosen_groups
        if not 1 <= self.chosen <= reachable:
            raise ConfigError(f"routing: expected 1 to {reachable} experts per token; found {self.chosen}")


class Router(Module):
    """Chooses experts. Scores are f32 or wider, and so is the correction, whatever the other parameters' dtype."""

    def __init__(self, size: int, routing: Routing, *, dtype: DType | str = "f32") -> None:
        self.weight = Parameter((routing.experts, size), dtype)
        self.bias = Parameter((routing.experts,), dtype) if routing.biased else None
        self.e_score_correction_bias = Parameter((routing.experts,), "f32") if routing.corrected else None
        self.routing = routing

    def forward(self, ctx: ExecutionContext, x: Tensor) -> tuple[Tensor, Tensor]:
        """Chooses experts for x [M, D]: experts i32 [M, C], best first, and their weights [M, C], f32 or wider."""
        ops, routing = ctx.ops, self.routing
        wide = as_dtype(x.dtype).accumulation
        logits = ops.dot_general(x, ctx.parameter(self.weight), ((1,), (1,)), dtype=wide)  # [M, E]
        if self.bias is not None:
            logits = ops.add(logits, ops.cast(ctx.parameter(self.bias), wide))
        if routing.softcap is not None:
            logits = ops.mul(ops.tanh(ops.div(logits, routing.softcap)), routing.softcap)
        if routing.scoring is Scoring.MIXER:
            return self._mixed(ctx, logits)
        scores = ops.softmax(logits) if routing.scoring is Scoring.SOFTMAX else ops.logistic(logits)
        choice = logits if routing.by_logits else scores
        if self.e_score_correction_bias is not None:
            choice = ops.add(choice, ops.cast(ctx.parameter(self.e_score_correction_bias), wide))
        if routing.chosen_groups < routing.groups:
            choice = self._within_groups(ctx, choice)
        best, chosen = ops.top_k(choice, routing.chosen)
        weights = best if choice is scores else self._scores_of(ctx, scores, chosen)
        if routing.normalized:
            weights = ops.div(weights, self._sum_of(ctx, weights))
        return chosen, weights if routing.scale == 1.0 else ops.mul(weights, routing.scale)

    def _mixed(self, ctx: ExecutionContext, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Chooses experts for logits [M, E] one after the other, each with its share among those near it."""
        ops, left = ctx.ops, logits
        chosen: list[Tensor] = []
        weights: list[Tensor] = []
        for _ in range(self.routing.chosen):
            best, expert = ops.top_k(left, 1)
            distance = ops.div(ops.sub(best, logits), ops.maximum(ops.abs(logits), best))
            near = ops.select(ops.greater(distance, self.routing.nearness), float("-inf"), left)
            chosen.append(expert)
            weights.append(ops.max(ops.softmax(near), 1, keepdims=True))
            left = ops.select(ops.equal(expert, ops.iota((1, self.routing.experts), 1)), float("-inf"), left)
        return ops.concat(chosen, 1), ops.concat(weights, 1)

    def _sum_of(self, ctx: ExecutionContext, weights: Tensor) -> Tensor:
        """Returns the divisor of weights [M, C]: [M, 1]."""
        total, least = ctx.ops.sum(weights, 1, keepdims=True), self.routing.least_sum
        return ctx.ops.add(total, self.routing.eps) if least is None else ctx.ops.maximum(total, least)

    def _scores_of(self, ctx: ExecutionContext, scores: Tensor, chosen: Tensor) -> Tensor:
        """Returns scores [M, E] at chosen [M, C], as sums of one, so devices do not exchange scores."""
        ops, experts = ctx.ops, self.routing.experts
        mine = ops.equal(ops.reshape(chosen, (*chosen.shape, 1)), ops.iota((1, 1, experts), 2))
        return ops.sum(ops.select(mine, ops.reshape(scores, (-1, 1, experts)), 0.0), 2)

    def _within_groups(self, ctx: ExecutionContext, choice: Tensor) -> Tensor:
        """Returns choice [M, E] with minus infinity in the groups that are not chosen."""
        ops, routing = ctx.ops, self.routing
        tokens, groups = choice.shape[0], routing.groups
        grouped = ops.reshape(choice, (tokens, groups, routing.experts // groups))
        merits = ops.sum(ops.top_k(grouped, routing.group_best)[0], 2)  # [M, groups]
        kept = ops.reshape(ops.top_k(merits, routing.chosen_groups)[1], (tokens, routing.chosen_groups, 1))
        mask = ops.any(ops.equal(kept, ops.iota((1, 1, groups), 2)), 1)  # [M, groups]
        masked = ops.select(ops.reshape(mask, (tokens, groups, 1)), grouped, float("-inf"))
        return ops.reshape(masked, choice.shape)


class ScaledRouter(Module):
    """Router behind a norm, with learned scales of its inputs and of the experts' weights (Gemma 4).

    Args:
        size: D.
        routing: choice of experts.
        eps: eps of the norm, which lacks a weight.
        dtype: dtype of the parameters.
    """

    def __init__(self, size: int, routing: Routing, *, eps: float = 1e-6, dtype: DType | str = "f32") -> None:
        self.eps = eps
        self.proj = Router(size, routing, dtype=dtype)
        self.scale = Parameter((size,), dtype)
        self.per_expert_scale = Parameter((routing.experts,), dtype)

    def forward(self, ctx: ExecutionContext, x: Tensor) -> tuple[Tensor, Tensor]:
        """Chooses experts for x [M, D], as ``Router``; the chosen ones' weights are multiplied by their scales."""
        ops = ctx.ops
        scaled = ops.mul(ops.rms_norm(x, ctx.parameter(self.scale), self.eps), x.shape[-1] ** -0.5)
        chosen, weights = self.proj(ctx, scaled)
        scales = ops.take(ctx.parameter(self.per_expert_scale), chosen)
        return chosen, ops.mul(weights, ops.cast(scales, weights.dtype))
