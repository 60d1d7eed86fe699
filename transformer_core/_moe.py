"""Mixtures of experts: a router, stacked expert weights, and the feed-forward layer made of both.

Besides the package's letters, M is the number of tokens (B times T), C how many experts each token chooses, and A = M C
the number of (token, expert) pairs.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lang_core import ConfigError, DType, ExecutionContext, Module, Parameter, Tensor, as_dtype, checked_choices
from transformer_core._feed_forward import Activation, SwiGLU
from transformer_core._linear import Linear

# Rows that one round of the loop over experts takes: few are free, for the weights are what costs; beyond the upper
# bound a product of matrices is no faster per row.
_LEAST_ROWS: Final = 8
_MOST_ROWS: Final = 128
# Most tokens whose experts are read once for each pair: those of more tokens are often the same.
_FEW_TOKENS: Final = 4


class Scoring(enum.Enum):
    """Function from a router's logits to scores."""

    SOFTMAX = "softmax"
    """Softmax over all experts (Mixtral, arXiv:2401.04088; Qwen3-MoE)."""
    SIGMOID = "sigmoid"
    """Logistic function of each logit (DeepSeek-V3, arXiv:2412.19437, section 2.1.2)."""


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """Choice of experts for each token.

    Attributes:
        experts: E.
        chosen: C, experts per token.
        scoring: function from logits to scores.
        normalized: whether the chosen experts' scores are divided by their sum.
        scale: factor of the final weights.
        corrected: whether a bias is added to the scores that choose, but not to the weights.
        groups: number of groups of equal size into which the experts are divided.
        chosen_groups: number of groups that a token chooses from: those with the greatest sums of two best scores.

    Raises:
        ConfigError: the numbers contradict one another.
    """

    experts: int
    chosen: int
    scoring: Scoring = Scoring.SOFTMAX
    normalized: bool = True
    scale: float = 1.0
    corrected: bool = False
    groups: int = 1
    chosen_groups: int = 1

    def __post_init__(self) -> None:
        if self.experts % self.groups or (self.groups > 1 and self.experts // self.groups < 2):
            raise ConfigError(f"routing: {self.experts} experts do not make {self.groups} equal groups of 2 or more")
        if not 1 <= self.chosen_groups <= self.groups:
            raise ConfigError(f"routing: expected 1 to {self.groups} chosen groups; found {self.chosen_groups}")
        reachable = self.experts // self.groups * self.chosen_groups
        if not 1 <= self.chosen <= reachable:
            raise ConfigError(f"routing: expected 1 to {reachable} experts per token; found {self.chosen}")


class Router(Module):
    """Chooses experts. Scores are f32 or wider, and so is the correction, whatever the other parameters' dtype."""

    def __init__(self, size: int, routing: Routing, *, dtype: DType | str = "f32") -> None:
        self.weight = Parameter((routing.experts, size), dtype)
        self.e_score_correction_bias = Parameter((routing.experts,), "f32") if routing.corrected else None
        self.routing = routing

    def forward(self, ctx: ExecutionContext, x: Tensor) -> tuple[Tensor, Tensor]:
        """Chooses experts for x [M, D]: experts i32 [M, C], best first, and their weights [M, C], f32 or wider."""
        ops, routing = ctx.ops, self.routing
        wide = as_dtype(x.dtype).accumulation
        logits = ops.dot_general(x, ctx.parameter(self.weight), ((1,), (1,)), dtype=wide)  # [M, E]
        scores = ops.softmax(logits) if routing.scoring is Scoring.SOFTMAX else ops.logistic(logits)
        choice = scores
        if self.e_score_correction_bias is not None:
            choice = ops.add(scores, ops.cast(ctx.parameter(self.e_score_correction_bias), wide))
        if routing.chosen_groups < routing.groups:
            choice = self._within_groups(ctx, choice)
        best, chosen = ops.top_k(choice, routing.chosen)
        weights = best if choice is scores else self._scores_of(ctx, scores, chosen)
        if routing.normalized:
            weights = ops.div(weights, ops.add(ops.sum(weights, 1, keepdims=True), 1e-20))
        return chosen, weights if routing.scale == 1.0 else ops.mul(weights, routing.scale)

    def _scores_of(self, ctx: ExecutionContext, scores: Tensor, chosen: Tensor) -> Tensor:
        """Takes scores [M, E] at chosen [M, C]; not by ``ops.gather``, whose batching StableHLO 1.0.0 lacks."""
        ops = ctx.ops
        places = ops.add(chosen, ops.mul(ops.iota(chosen.shape, 0), self.routing.experts))
        return ops.take(ops.reshape(scores, (-1,)), places)

    def _within_groups(self, ctx: ExecutionContext, choice: Tensor) -> Tensor:
        """Returns choice [M, E] with minus infinity in the groups that are not chosen."""
        ops, routing = ctx.ops, self.routing
        tokens, groups = choice.shape[0], routing.groups
        grouped = ops.reshape(choice, (tokens, groups, routing.experts // groups))
        merits = ops.sum(ops.top_k(grouped, 2)[0], 2)  # [M, groups]
        kept = ops.reshape(ops.top_k(merits, routing.chosen_groups)[1], (tokens, routing.chosen_groups, 1))
        mask = ops.any(ops.equal(kept, ops.iota((1, 1, groups), 2)), 1)  # [M, groups]
        masked = ops.select(ops.reshape(mask, (tokens, groups, 1)), grouped, float("-inf"))
        return ops.reshape(masked, choice.shape)


@checked_choices
class Experts(Module):
    """E feed-forward layers as ``SwiGLU``, each projection of all of them in one parameter.

    Pairs of token and expert are sorted by expert; a loop then takes up to some rows of one expert in each round, so
    that work is proportional to the pairs, each chosen expert's weights are read once per round and the others' never,
    and the number of ops depends on no size. Rejected: a product over all experts with weights 0 for those that were
    not chosen (E / C times the work, and a NaN of one token would reach all), and taking the chosen experts' weights
    per token (A copies of a weight, too much for a prefill).
    """

    def __init__(
        self,
        experts: int,
        size: int,
        inner: int,
        *,
        activation: Activation = Activation.SILU,
        dtype: DType | str = "f32",
    ) -> None:
        self.activation = activation
        self.gate_proj = Parameter((experts, inner, size), dtype)
        self.up_proj = Parameter((experts, inner, size), dtype)
        self.down_proj = Parameter((experts, size, inner), dtype)

    def forward(self, ctx: ExecutionContext, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """Computes the weighted sum of the results of each token's experts.

        Args:
            ctx: context that computes.
            x: [M, D].
            chosen: i32 [M, C].
            weights: f32 or wider [M, C].

        Returns:
            [M, D] in x's dtype, summed in that of the weights.
        """
        tokens, count = chosen.shape
        experts = self.gate_proj.spec.shape[0]
        packed = all(weight.encoding is not None for weight in (self.gate_proj, self.up_proj, self.down_proj))
        if packed and (tokens == 1 or (tokens <= _FEW_TOKENS and tokens * count <= experts)):
            return self._of_pairs(ctx, x, chosen, weights)
        return self._by_expert(ctx, x, chosen, weights)

    def _of_pairs(self, ctx: ExecutionContext, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """Computes each pair of token and expert by itself: few tokens rarely have an expert in common."""
        ops, (tokens, count), size = ctx.ops, chosen.shape, x.shape[1]
        expert, given = ops.reshape(chosen, (tokens * count,)), ops.reshape(x, (tokens, 1, size))
        gate, up = (self._product(ctx, given, ctx.parameter(w), w, expert) for w in (self.gate_proj, self.up_proj))
        hidden = ops.mul(self.activation(ctx, gate), up)  # [A, 1, F]
        down = self._product(ctx, hidden, ctx.parameter(self.down_proj), self.down_proj, expert)
        return _weighted(ctx, weights, ops.reshape(down, (tokens, count, size)), x.dtype)

    def _by_expert(self, ctx: ExecutionContext, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """Computes the pairs of one expert after the other, some rows in each round."""
        ops = ctx.ops
        tokens, size = x.shape
        count = chosen.shape[1]
        pairs, rows = tokens * count, _rows_per_round(tokens, count, self.gate_proj.spec.shape[0])
        ordered, order = ops.sort(ops.reshape(chosen, (pairs,)))
        of_pair = ops.pad(ordered, (0,), (rows,), -1)  # a round may begin near the end, and -1 is no expert
        of_place = ops.reshape(ops.iota((tokens, count), 0), (pairs,))
        token = ops.pad(ops.take(of_place, order), (0,), (rows,))
        stacked = [(ctx.parameter(weight), weight) for weight in (self.gate_proj, self.up_proj, self.down_proj)]

        def one_round(first: Tensor, results: Tensor) -> Sequence[Tensor]:
            expert = ops.dynamic_slice(of_pair, (first,), (1,))
            taken = ops.sum(ops.cast(ops.equal(ops.dynamic_slice(of_pair, (first,), (rows,)), expert), "i32"))
            mine = ops.reshape(ops.take(x, ops.dynamic_slice(token, (first,), (rows,))), (1, rows, size))
            gate, up = (self._product(ctx, mine, *weight, expert) for weight in stacked[:2])
            hidden = ops.mul(self.activation(ctx, gate), up)
            down = ops.reshape(self._product(ctx, hidden, *stacked[2], expert), (rows, size))
            # Rows beyond the expert's own are written too, and overwritten by the rounds of the experts they belong to.
            return ops.add(first, taken), ops.dynamic_update_slice(results, down, (first, 0))

        start = ops.constant(0, "i32"), ops.zeros((pairs + rows, size), x.dtype)
        most = pairs // rows + min(pairs, self.gate_proj.spec.shape[0])  # each expert's last round may have few rows
        results = ops.while_loop(lambda first, results: ops.less(first, pairs), one_round, start, most)[1]
        # The place of each pair among the sorted ones.
        places = ops.scatter(ops.zeros((pairs,), "i32"), order, ops.iota((pairs,)), 0)
        return _weighted(ctx, weights, ops.take(results, ops.reshape(places, (tokens, count))), x.dtype)

    def _product(
        self, ctx: ExecutionContext, x: Tensor, stacked: Tensor, parameter: Parameter, expert: Tensor
    ) -> Tensor:
        """Multiplies x [X, R, I] with the weights of experts i32 [G], those of one parameter [E, O, I]: [G, R, O]."""
        if parameter.encoding is not None:
            how = parameter.activations
            return ctx.ops.packed_expert_linear(x, expert, stacked, parameter.encoding, activations=how)
        return ctx.ops.linear(x, _of_expert(ctx, stacked, expert))


@checked_choices
class SparseFeedForward(Module):
    """A router and its experts, and experts that every token goes through; under Hugging Face's names.

    Args:
        size: D.
        inner: F of one expert.
        routing: choice of experts.
        shared: F of the shared experts together; there are none where 0.
        shared_gate: whether there is one shared expert, multiplied by a logistic gate of the token (Qwen3-Next).
        activation: activation of all experts.
        dtype: dtype of the parameters.
    """

    def __init__(
        self,
        size: int,
        inner: int,
        routing: Routing,
        *,
        shared: int = 0,
        shared_gate: bool = False,
        activation: Activation = Activation.SILU,
        dtype: DType | str = "f32",
    ) -> None:
        self.gate = Router(size, routing, dtype=dtype)
        self.experts = Experts(routing.experts, size, inner, activation=activation, dtype=dtype)
        common = SwiGLU(size, shared, activation=activation, dtype=dtype) if shared else None
        self.shared_experts, self.shared_expert = (None, common) if shared_gate else (common, None)
        self.shared_expert_gate = Linear(size, 1, dtype=dtype) if shared_gate else None

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [.., D] to [.., D]."""
        tokens = ctx.ops.reshape(x, (-1, x.shape[-1]))
        routed = ctx.ops.reshape(self.experts(ctx, tokens, *self.gate(ctx, tokens)), x.shape)
        if self.shared_expert is not None and self.shared_expert_gate is not None:
            gate = ctx.ops.logistic(self.shared_expert_gate(ctx, x))
            return ctx.ops.add(routed, ctx.ops.mul(gate, self.shared_expert(ctx, x)))
        return routed if self.shared_experts is None else ctx.ops.add(routed, self.shared_experts(ctx, x))


def _rows_per_round(tokens: int, chosen: int, experts: int) -> int:
    """Returns about twice the rows of an expert if all are equally popular; a power of two, or all tokens."""
    fair = -(-2 * tokens * chosen // experts)
    return min(tokens, max(_LEAST_ROWS, min(_MOST_ROWS, 1 << (fair - 1).bit_length())))


def _weighted(ctx: ExecutionContext, weights: Tensor, parts: Tensor, dtype: DType | str) -> Tensor:
    """Returns the sums [M, D] of parts [M, C, D] times weights [M, C], rounded to a dtype."""
    parts = ctx.ops.cast(parts, weights.dtype)
    return ctx.ops.cast(ctx.ops.dot_general(weights, parts, ((1,), (1,)), ((0,), (0,))), dtype)


def _of_expert(ctx: ExecutionContext, stacked: Tensor, expert: Tensor) -> Tensor:
    """Returns the weight [I, J] of ``expert`` i32 [1] out of [E, I, J]."""
    inner = stacked.shape[1:]
    part = ctx.ops.dynamic_slice(stacked, (ctx.ops.reshape(expert, ()), 0, 0), (1, *inner))
    return ctx.ops.reshape(part, inner)
