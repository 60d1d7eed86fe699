"""Apertus (arXiv:2509.14233): normed queries and keys, a feed-forward without a gate, with a learned activation."""

from typing import Final

from lang_core import DType, ExecutionContext, Module, Parameter, Tensor, as_dtype
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedKeys
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, llama_kind
from transformer_core.family._layer import DecoderLayer
from transformer_core.layers._linear import Linear
from transformer_core.models.families._cwm import with_default_rope

_STORED: Final = {"input_layernorm": "attention_layernorm", "post_attention_layernorm": "feedforward_layernorm"}


class XIELU(Module):
    """xIELU (Huang, Schlag 2024, arXiv:2411.13010): a parabola above 0, and an exponential below, both learned."""

    def __init__(self, dtype: DType) -> None:
        self.alpha_p, self.alpha_n = Parameter((1,), dtype), Parameter((1,), dtype)
        self.beta, self.eps = Parameter((), dtype), Parameter((), dtype)

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [..] to [..]; in f32 or wider."""
        ops, wide = ctx.ops, as_dtype(x.dtype).accumulation
        held = (self.alpha_p, self.alpha_n, self.beta, self.eps)
        above, below, slope, least = (ops.cast(ctx.parameter(parameter), wide) for parameter in held)
        x_wide = ops.cast(x, wide)
        above, below = ops.softplus(above), ops.add(slope, ops.softplus(below))
        falling = ops.sub(ops.expm1(ops.minimum(x_wide, least)), x_wide)
        curved = ops.select(ops.greater(x_wide, 0.0), ops.mul(above, ops.mul(x_wide, x_wide)), ops.mul(falling, below))
        return ops.cast(ops.add(curved, ops.mul(slope, x_wide)), x.dtype)


class _FeedForward(Module):
    """``down(xielu(up(x)))``."""

    def __init__(self, config: DecoderConfig, dtype: DType) -> None:
        self.up_proj = Linear(config.hidden, config.intermediate, dtype=dtype)
        self.down_proj = Linear(config.intermediate, config.hidden, dtype=dtype)
        self.act_fn = XIELU(dtype)

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [.., D] to [.., D]; inside, [.., F]."""
        return self.down_proj(ctx, self.act_fn(ctx, self.up_proj(ctx, x)))


class _Layer(DecoderLayer):
    """Layer of a Llama with the family's feed-forward."""

    def __init__(self, config: DecoderConfig, index: int, dtype: DType) -> None:
        super().__init__(config, index, dtype)
        self.mlp = _FeedForward(config, dtype)


def _read(fields: ConfigFields) -> DecoderConfig:
    fields.choice("hidden_act", ("xielu",), "xielu")
    fields = with_default_rope(fields, rope_theta=12e6, factor=8.0, original_max_position_embeddings=8192)
    fields = ConfigFields({**fields.values, "hidden_act": "silu"}, fields.where)  # the layer has its own
    heads, kv_heads, head_size = heads_of(fields, kv_heads_default=True)
    biased = fields.boolean("attention_bias", False)
    sizes = {"heads": heads, "kv_heads": kv_heads, "head_size": head_size}
    flags = {"qkv_bias": biased, "output_bias": biased, "qk_norm": True, "gated_mlp": False}
    return llama_kind(fields, APERTUS.architecture, **sizes, **flags, norm_eps=fields.number("rms_norm_eps", 1e-5))


APERTUS: Final = Family("ApertusForCausalLM", "apertus", _read, _Layer, lambda config: RenamedKeys(_STORED))
