"""Mixtures of experts: stacked expert weights, and the feed-forward layer made of a router and these.

Besides the package's letters, M is the number of tokens (B times T), C how many experts each token chooses, and A = M C
the number of (token, expert) pairs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from lang_core import DType, ExecutionContext, Module, Parameter, Tensor, checked_choices
from transformer_core.layers._expert_groups import Stacked, by_groups
from transformer_core.layers._feed_forward import Activation, SwiGLU
from transformer_core.layers._linear import Linear
from transformer_core.layers._routing import Router, Routing

# Rows that one round of the loop over experts takes: few are free, for the weights are what costs; beyond the upper
# bound a product of matrices is no faster per row.
_LEAST_ROWS: Final = 8
_MOST_ROWS: Final = 128
# Most tokens whose experts are read once for each pair: those of more tokens are often the same.
_FEW_TOKENS: Final = 4


@dataclass(frozen=True, slots=True)
class ClampedGate:
    """Gate of gpt-oss: ``g * logistic(alpha g) * (u + 1)``, g at most ``limit``, u within ``limit`` of 0.

    Attributes:
        alpha: factor inside of the logistic.
        limit: bound of both projections.
    """

    alpha: float
    limit: float

    def __call__(self, ctx: ExecutionContext, gate: Tensor, up: Tensor) -> Tensor:
        """Combines gate and up [..]: [..]."""
        ops = ctx.ops
        gate, up = ops.minimum(gate, self.limit), ops.clamp(up, -self.limit, self.limit)
        return ops.mul(ops.mul(gate, ops.logistic(ops.mul(gate, self.alpha))), ops.add(up, 1.0))


@checked_choices
class Experts(Module):
    """E feed-forward layers as ``SwiGLU``, or ``FeedForward``, each projection of all of them in one parameter.

    Pairs of token and expert are sorted by expert; a loop then takes up to some rows of one expert in each round, so
    that work is proportional to the pairs, each chosen expert's weights are read once per round and the others' never,
    and the number of ops does not depend on sizes. Rejected: a product over all experts with weights 0 for those that
    were not chosen (E / C times the work, and a NaN of one token would reach all), and taking the chosen experts'
    weights per token (A copies of a weight, too much for a prefill).

    Attributes:
        groups: number of equal groups of experts, of which devices hold one or several each (``sharding``).
    """

    groups: int = 1

    def __init__(
        self,
        experts: int,
        size: int,
        inner: int,
        *,
        activation: Activation = Activation.SILU,
        biased: bool = False,
        clamped: ClampedGate | None = None,
        gated: bool = True,
        dtype: DType | str = "f32",
    ) -> None:
        self.activation, self.clamped = activation, clamped
        self.gate_proj = Parameter((experts, inner, size), dtype) if gated else None
        self.up_proj = Parameter((experts, inner, size), dtype)
        self.down_proj = Parameter((experts, size, inner), dtype)
        self.gate_proj_bias = Parameter((experts, inner), dtype) if biased and gated else None
        self.up_proj_bias = Parameter((experts, inner), dtype) if biased else None
        self.down_proj_bias = Parameter((experts, size), dtype) if biased else None

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
        experts = self.up_proj.spec.shape[0]
        if self.groups > 1:
            return self._by_groups(ctx, x, chosen, weights)
        packed = all(weight is None or weight.encoding for weight in (self.gate_proj, self.up_proj, self.down_proj))
        if packed and (tokens == 1 or (tokens <= _FEW_TOKENS and tokens * count <= experts)):
            return self._of_pairs(ctx, x, chosen, weights)
        return self._by_expert(ctx, x, chosen, weights)

    def _of_pairs(self, ctx: ExecutionContext, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """Computes each pair of token and expert by itself: few tokens rarely have an expert in common."""
        ops, (tokens, count), size = ctx.ops, chosen.shape, x.shape[1]
        expert, given = ops.reshape(chosen, (tokens * count,)), ops.reshape(x, (tokens, 1, size))
        down = self._computed(ctx, given, partial(_product, expert), self._weights(ctx))  # [A, 1, D]
        return _weighted(ctx, weights, ops.reshape(down, (tokens, count, size)), x.dtype)

    def _by_groups(self, ctx: ExecutionContext, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """Computes the pairs of one expert of each group after the other, some rows of each in each round."""
        ops, (tokens, count), experts = ctx.ops, chosen.shape, self.up_proj.spec.shape[0]

        def computed(mine: Tensor, stacked: Stacked) -> Tensor:
            return self._computed(ctx, mine, _product_of_groups, stacked)

        rows = _rows_per_round(tokens, count, experts)
        parts = by_groups(ctx, x, chosen, self._weights(ctx), computed, groups=self.groups, rows=rows)
        shares = ops.mul(ops.cast(parts, weights.dtype), ops.reshape(weights, (1, tokens, count, 1)))
        return ops.cast(ops.sum(shares, (0, 2)), x.dtype)

    def _by_expert(self, ctx: ExecutionContext, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """Computes the pairs of one expert after the other, some rows in each round."""
        ops = ctx.ops
        tokens, size = x.shape
        count = chosen.shape[1]
        pairs, rows = tokens * count, _rows_per_round(tokens, count, self.up_proj.spec.shape[0])
        ordered, order = ops.sort(ops.reshape(chosen, (pairs,)))
        of_pair = ops.pad(ordered, (0,), (rows,), -1)  # a round may begin near the end, and -1 is no expert
        of_place = ops.reshape(ops.iota((tokens, count), 0), (pairs,))
        token = ops.pad(ops.take(of_place, order), (0,), (rows,))
        stacked = self._weights(ctx)

        def one_round(first: Tensor, results: Tensor) -> Sequence[Tensor]:
            expert = ops.dynamic_slice(of_pair, (first,), (1,))
            taken = ops.sum(ops.cast(ops.equal(ops.dynamic_slice(of_pair, (first,), (rows,)), expert), "i32"))
            mine = ops.reshape(ops.take(x, ops.dynamic_slice(token, (first,), (rows,))), (1, rows, size))
            down = ops.reshape(self._computed(ctx, mine, partial(_product, expert), stacked), (rows, size))
            # Rows beyond the expert's own are written too, and overwritten by the rounds of the experts they belong to.
            return ops.add(first, taken), ops.dynamic_update_slice(results, down, (first, 0))

        start = ops.constant(0, "i32"), ops.zeros((pairs + rows, size), x.dtype)
        most = pairs // rows + min(pairs, self.up_proj.spec.shape[0])  # each expert's last round may have few rows
        results = ops.while_loop(lambda first, results: ops.less(first, pairs), one_round, start, most)[1]
        # The place of each pair among the sorted ones.
        places = ops.scatter(ops.zeros((pairs,), "i32"), order, ops.iota((pairs,)), 0)
        return _weighted(ctx, weights, ops.take(results, ops.reshape(places, (tokens, count))), x.dtype)

    def _weights(self, ctx: ExecutionContext) -> Stacked:
        """Returns the projections, two without gates: parameter, weights and biases."""
        projections = (
            (self.gate_proj, self.gate_proj_bias),
            (self.up_proj, self.up_proj_bias),
            (self.down_proj, self.down_proj_bias),
        )
        return [(w, ctx.parameter(w), None if b is None else ctx.parameter(b)) for w, b in projections if w is not None]

    def _computed(self, ctx: ExecutionContext, x: Tensor, product: "_ProductOf", stacked: Stacked) -> Tensor:
        """Computes experts on groups of rows x [X, R, D]: [G, R, D]."""
        *before, last = stacked
        gate, *up = (product(ctx, x, *projection) for projection in before)
        if self.clamped is not None:
            hidden = self.clamped(ctx, gate, *up)
        else:
            hidden = self.activation(ctx, gate)  # [G, R, F]
            hidden = ctx.ops.mul(hidden, *up) if up else hidden
        return product(ctx, hidden, *last)


_ProductOf = Callable[[ExecutionContext, Tensor, Parameter, Tensor, Tensor | None], Tensor]


def _product(
    expert: Tensor, ctx: ExecutionContext, x: Tensor, parameter: Parameter, stacked: Tensor, biases: Tensor | None
) -> Tensor:
    """Multiplies x [X, R, I] with the weights of experts i32 [G] out of [E, O, I], and adds their biases: [G, R, O]."""
    ops = ctx.ops
    if parameter.encoding is None:
        made = ops.linear(x, _of_expert(ctx, stacked, expert))
    else:
        how = parameter.activations
        made = ops.packed_expert_linear(x, expert, stacked, parameter.encoding, activations=how)
    if biases is None:
        return made
    return ops.add(made, ops.reshape(ops.take(biases, expert), (expert.shape[0], 1, biases.shape[1])))


def _product_of_groups(
    ctx: ExecutionContext, x: Tensor, parameter: Parameter, weights: Tensor, biases: Tensor | None
) -> Tensor:
    """Multiplies x [G, R, I] with weights [G, O, I], which may be packed, and adds biases [G, O]: [G, R, O]."""
    ops = ctx.ops
    if parameter.encoding is not None:
        weights = ops.dequantize(weights, parameter.encoding, x.dtype)
    made = ops.dot_general(x, weights, ((2,), (2,)), ((0,), (0,)))
    return made if biases is None else ops.add(made, ops.reshape(biases, (biases.shape[0], 1, biases.shape[1])))


@checked_choices
class SparseFeedForward(Module):
    """A router and its experts, and experts that every token goes through; under Hugging Face's names.

    Args:
        size: D.
        inner: F of one expert.
        routing: choice of experts.
        shared: F of the shared experts together; there are none if 0.
        shared_gate: whether there is one shared expert, multiplied by a logistic gate of the token (Qwen3-Next).
        sum_scale: factor of the sum of what routed and shared experts give, 1/2 for their average (Cohere 2).
        activation: activation of all experts.
        biased: whether the routed experts' projections have biases.
        shared_biased: whether those of the shared experts have.
        scales_inputs: whether an expert's weight is a factor of its input, and not of its result (Llama 4).
        clamped: clamped gate of the routed experts; the activation if None.
        gated: whether the routed experts have gates.
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
        sum_scale: float = 1.0,
        activation: Activation = Activation.SILU,
        biased: bool = False,
        shared_biased: bool = False,
        scales_inputs: bool = False,
        clamped: ClampedGate | None = None,
        gated: bool = True,
        dtype: DType | str = "f32",
    ) -> None:
        self.scales_inputs, self.sum_scale = scales_inputs, sum_scale
        self.gate = Router(size, routing, dtype=dtype)
        kinds = {"activation": activation, "biased": biased, "clamped": clamped, "gated": gated}
        self.experts = Experts(routing.experts, size, inner, **kinds, dtype=dtype)
        common = SwiGLU(size, shared, activation=activation, bias=shared_biased, dtype=dtype) if shared else None
        self.shared_experts, self.shared_expert = (None, common) if shared_gate else (common, None)
        self.shared_expert_gate = Linear(size, 1, dtype=dtype) if shared_gate else None

    def forward(self, ctx: ExecutionContext, x: Tensor, chosen_by: Tensor | None = None) -> Tensor:
        """Maps x [.., D] to [.., D]; ``chosen_by`` [.., D] chooses the experts, x if None."""
        tokens = ctx.ops.reshape(x, (-1, x.shape[-1]))
        deciding = tokens if chosen_by is None else ctx.ops.reshape(chosen_by, tokens.shape)
        routed = ctx.ops.reshape(self._routed(ctx, tokens, *self.gate(ctx, deciding)), x.shape)
        if self.shared_expert is not None and self.shared_expert_gate is not None:
            gate = ctx.ops.logistic(self.shared_expert_gate(ctx, x))
            return ctx.ops.add(routed, ctx.ops.mul(gate, self.shared_expert(ctx, x)))
        if self.shared_experts is None:
            return routed
        both = ctx.ops.add(routed, self.shared_experts(ctx, x))
        return both if self.sum_scale == 1.0 else ctx.ops.mul(both, self.sum_scale)

    def _routed(self, ctx: ExecutionContext, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """Computes the experts of x [M, D]: [M, D]."""
        if not self.scales_inputs:
            return self.experts(ctx, x, chosen, weights)
        ops, (tokens, count), size = ctx.ops, chosen.shape, x.shape[1]
        pairs, factors = tokens * count, ops.cast(ops.reshape(weights, (tokens, count, 1)), x.dtype)
        scaled = ops.reshape(ops.mul(ops.reshape(x, (tokens, 1, size)), factors), (pairs, size))
        ones = ops.broadcast(ops.constant(1.0, weights.dtype), (pairs, 1))
        made = self.experts(ctx, scaled, ops.reshape(chosen, (pairs, 1)), ones)
        return ops.sum(ops.reshape(made, (tokens, count, size)), 1)


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
