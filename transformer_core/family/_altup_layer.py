"""Layers with alternating updates, and the stages before and after them (Gemma 3n)."""

from lang_core import ConfigError, DType, ExecutionContext, Tensor
from transformer_core.family._config import DecoderConfig
from transformer_core.family._layer_configs import AltUpConfig
from transformer_core.family._other_layers import SandwichLayer
from transformer_core.family._per_layer import PerLayerMixing
from transformer_core.flow import ModelFlow
from transformer_core.layers._altup import AltUp, AltUpProjections, AltUpSizes, AltUpUnembedding, Laurel, add_to_others
from transformer_core.layers._feed_forward import SwiGLU
from transformer_core.layers._kv_cache import KVCache
from transformer_core.layers._step import StepInputs


def copies_made(config: DecoderConfig, altup: AltUpConfig) -> ModelFlow:
    """Returns the stage that makes copies [B, T, A, D] of embedded tokens [B, T, D]."""
    sizes = altup_sizes(config, altup)
    return ModelFlow("copies").stage("altup_projections", lambda build: AltUpProjections(sizes, dtype=build.dtype))


def copies_merged(config: DecoderConfig, altup: AltUpConfig) -> ModelFlow:
    """Returns the stage that makes one residual stream [B, T, D] of copies [B, T, A, D]."""
    sizes, name = altup_sizes(config, altup), "altup_unembed_projections"
    return ModelFlow("one").stage(name, lambda build: AltUpUnembedding(sizes, dtype=build.dtype))


def altup_sizes(config: DecoderConfig, altup: AltUpConfig) -> AltUpSizes:
    """Returns the sizes of the modules."""
    return AltUpSizes(size=config.hidden, copies=altup.copies, active=altup.active, eps=config.norm_eps)


class AltUpLayer(SandwichLayer, PerLayerMixing):
    """Layer of copies [B, T, A, D]: predicts them, computes one, corrects them, and mixes embeddings into the others.

    The one is as in ``SandwichLayer``, but that LAuReL's result is added to attention's.

    Args:
        config: configuration with ``altup`` and ``per_layer``.
        index: number of the layer.
        dtype: dtype of the parameters.

    Raises:
        ConfigError: the configuration lacks one of the two.
    """

    def __init__(self, config: DecoderConfig, index: int, dtype: DType) -> None:
        super().__init__(config, index, dtype)
        altup, per_layer = config.altup, config.per_layer
        if altup is None or per_layer is None:
            raise ConfigError("a layer with alternating updates: expected a configuration with altup and per_layer")
        self.mlp = SwiGLU(
            config.hidden,
            config.sizes_of(index).intermediate,
            activation=config.activation,
            sparsity=altup.sparsities[index],
            dtype=dtype,
        )
        self.altup = AltUp(altup_sizes(config, altup), dtype=dtype)
        self.laurel = Laurel(config.hidden, altup.laurel_rank, eps=config.norm_eps, dtype=dtype)
        self.scaled = altup.scaled
        self.add_per_layer(config, per_layer, dtype)

    def forward(
        self,
        ctx: ExecutionContext,
        x: Tensor,
        step: StepInputs,
        cache: KVCache | None = None,
        embedded: Tensor | None = None,
    ) -> tuple[Tensor, KVCache | None]:
        """Runs the layer on copies x [B, T, A, D] and its embeddings [B, T, P]: x's shape, and the updated cache."""
        predicted = self.altup.predicted(ctx, ctx.tag(x, "input"))
        computed, cache = self.summed(ctx, self.altup.active(ctx, predicted), step, cache)
        x = self.altup.corrected(ctx, predicted, computed)
        first = self.altup.active(ctx, x)
        mixed = self.per_layer_mixed(ctx, self.altup.scaled(ctx, first) if self.scaled else first, embedded)
        return ctx.tag(add_to_others(ctx, x, mixed), "output"), cache

    def summed(
        self, ctx: ExecutionContext, x: Tensor, step: StepInputs, cache: KVCache | None
    ) -> tuple[Tensor, KVCache | None]:
        """Adds attention, LAuReL and feed-forward to x [B, T, D]."""
        ops, normed = ctx.ops, self.input_layernorm(ctx, x)
        attended, cache = self.self_attn(ctx, normed, step, cache)
        attended = ctx.tag(self.post_attention_layernorm(ctx, attended), "self_attn.output")
        x = ops.mul(ops.add(ops.add(x, attended), self.laurel(ctx, normed)), 0.5**0.5)
        forwarded = self.post_feedforward_layernorm(ctx, self.forwarded(ctx, x))
        return ops.add(x, ctx.tag(forwarded, "mlp.output")), cache
