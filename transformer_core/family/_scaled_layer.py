"""Layer with four norms, experts beside the feed-forward, embeddings of its own, and a scale (Gemma 4)."""

from lang_core import DType, ExecutionContext, Parameter, Tensor
from transformer_core.family._config import DecoderConfig
from transformer_core.family._layer import norm
from transformer_core.family._other_layers import SandwichLayer
from transformer_core.family._per_layer import PerLayerMixing
from transformer_core.layers._kv_cache import KVCache
from transformer_core.layers._moe import Experts
from transformer_core.layers._routing import ScaledRouter
from transformer_core.layers._step import StepInputs


class ScaledLayer(SandwichLayer, PerLayerMixing):
    """``SandwichLayer`` with the layer's embeddings added to its sum, times a learned number.

    Experts and the dense feed-forward read the same residual stream, each behind a norm of its own; the sum of their
    normed results takes the place of the dense one's.
    """

    def __init__(self, config: DecoderConfig, index: int, dtype: DType) -> None:
        super().__init__(config, index, dtype)
        self.layer_scalar = Parameter((1,), dtype)
        self.router, self.experts = None, None
        experts = config.experts
        if experts is not None:
            self.router = ScaledRouter(config.hidden, experts.routing, eps=config.norm_eps, dtype=dtype)
            self.experts = Experts(
                experts.routing.experts, config.hidden, experts.inner, activation=config.activation, dtype=dtype
            )
            self.post_feedforward_layernorm_1 = norm(config, dtype)
            self.post_feedforward_layernorm_2 = norm(config, dtype)
            self.pre_feedforward_layernorm_2 = norm(config, dtype)
        if config.per_layer is not None:
            self.add_per_layer(config, config.per_layer, dtype)

    def forward(
        self,
        ctx: ExecutionContext,
        x: Tensor,
        step: StepInputs,
        cache: KVCache | None = None,
        embedded: Tensor | None = None,
    ) -> tuple[Tensor, KVCache | None]:
        """Runs the layer on x [B, T, D] and its embeddings [B, T, P]: x's shape, and the updated cache."""
        x, cache = self.summed(ctx, ctx.tag(x, "input"), step, cache)
        if self.mixes_embeddings:
            x = ctx.ops.add(x, self.per_layer_mixed(ctx, x, embedded))
        return ctx.tag(ctx.ops.mul(x, ctx.parameter(self.layer_scalar)), "output"), cache

    def forwarded(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Computes the feed-forward of x [B, T, D], and the experts', before the last norm."""
        dense = super().forwarded(ctx, x)
        if self.router is None or self.experts is None:
            return dense
        tokens = ctx.ops.reshape(x, (-1, x.shape[-1]))
        chosen, weights = self.router(ctx, tokens)
        routed = self.experts(ctx, self.pre_feedforward_layernorm_2(ctx, tokens), chosen, weights)
        routed = self.post_feedforward_layernorm_2(ctx, ctx.ops.reshape(routed, x.shape))
        return ctx.ops.add(self.post_feedforward_layernorm_1(ctx, dense), routed)
