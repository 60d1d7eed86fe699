"""HyperCLOVA X SEED: a Granite with norms after attention and feed-forward too, and logits times their factor."""

from dataclasses import replace
from typing import Final

from lang_core import DType, ExecutionContext, Tensor
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedKeys
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._other_layers import SandwichLayer
from transformer_core.layers._kv_cache import KVCache
from transformer_core.layers._step import StepInputs
from transformer_core.models.families._granite import granite_kind

_STORED: Final = {
    "post_attention_layernorm": "post_norm1",
    "pre_feedforward_layernorm": "post_attention_layernorm",
    "post_feedforward_layernorm": "post_norm2",
}


class _ScaledSandwichLayer(SandwichLayer):
    """``SandwichLayer`` whose summands are scaled."""

    def __init__(self, config: DecoderConfig, index: int, dtype: DType) -> None:
        super().__init__(config, index, dtype)
        self.residual_scale = config.residual_scale

    def summed(
        self, ctx: ExecutionContext, x: Tensor, step: StepInputs, cache: KVCache | None
    ) -> tuple[Tensor, KVCache | None]:
        """Adds attention and feed-forward to x [B, T, D]."""
        ops = ctx.ops
        attended, cache = self.self_attn(ctx, self.input_layernorm(ctx, x), step, cache)
        attended = ctx.tag(self.post_attention_layernorm(ctx, attended), "self_attn.output")
        x = ops.add(x, ops.mul(attended, self.residual_scale))
        forwarded = ctx.tag(self.post_feedforward_layernorm(ctx, self.forwarded(ctx, x)), "mlp.output")
        return ops.add(x, ops.mul(forwarded, self.residual_scale)), cache


def _read(fields: ConfigFields) -> DecoderConfig:
    head_size = heads_of(fields, kv_heads_default=True)[2]
    values = dict(fields.values)
    if not fields.has("attention_multiplier"):
        values["attention_multiplier"] = head_size**-0.5
    config = granite_kind(
        ConfigFields(values, fields.where),
        HYPERCLOVAX.architecture,
        mlp_bias=fields.boolean("mlp_bias", False),
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        sandwich=fields.boolean("use_post_norm", True),
    )
    return replace(config, logits_scale=fields.number("logits_scaling", 1.0))


def _layer(config: DecoderConfig, index: int, dtype: DType) -> DecoderLayer | SandwichLayer:
    return (_ScaledSandwichLayer if config.sandwich else DecoderLayer)(config, index, dtype)


HYPERCLOVAX: Final = Family(
    "HyperCLOVAXForCausalLM",
    "hyperclovax",
    _read,
    _layer,
    lambda config: RenamedKeys(_STORED if config.sandwich else {}),
)
