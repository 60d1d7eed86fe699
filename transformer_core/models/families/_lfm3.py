"""LFM3: an LFM2 with windows in some layers, gates of heads, four norms per layer, and a RoPE per type of layers."""

from typing import Any, Final

from lang_core import DType, ExecutionContext, Tensor
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedModules
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, kinds_of_layers, llama_kind, windows_of
from transformer_core.family._layer import DecoderLayer, StateLayer, norm
from transformer_core.family._layer_configs import ShortConvConfig
from transformer_core.family._layer_types import FULL, SLIDING, ropes_of_types
from transformer_core.layers._attention_config import OutputGate
from transformer_core.layers._feed_forward import Activation
from transformer_core.layers._step import StepInputs

_CONV: Final = "conv"
_DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    FULL: {"rope_type": "proportional", "rope_theta": 1_000_000.0, "partial_rotary_factor": 0.5},
    SLIDING: {"rope_type": "default", "rope_theta": 10_000.0},
}
_IN_LAYER: Final = {
    "input_layernorm": "operator_norm",
    "post_attention_layernorm": "ffn_norm",
    "post_mixer_norm": "post_operator_norm",
    "self_attn.g_proj": "self_attn.gate_proj",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.up_proj": "feed_forward.w3",
    "mlp.down_proj": "feed_forward.w2",
}
_KEYS: Final = RenamedModules(
    {
        "model.norm": "model.embedding_norm",
        **{f"model.layers.{{}}.{name}": f"model.layers.{{}}.{stored}" for name, stored in _IN_LAYER.items()},
    }
)


class _AttentionLayer(DecoderLayer):
    """Layer ``x + norm(attention(norm(x)))``, then ``x + norm(mlp(norm(x)))``."""

    def __init__(self, config: DecoderConfig, index: int, dtype: DType) -> None:
        super().__init__(config, index, dtype)
        self.post_mixer_norm, self.post_ffn_norm = norm(config, dtype), norm(config, dtype)

    def mixed(self, ctx: ExecutionContext, x: Tensor, step: StepInputs, cache: Any) -> tuple[Tensor, Any]:
        """Mixes tokens x [B, T, D] with attention, and norms them."""
        x, cache = super().mixed(ctx, x, step, cache)
        return self.post_mixer_norm(ctx, x), cache

    def forwarded(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Computes the normed feed-forward of x [B, T, D]."""
        return self.post_ffn_norm(ctx, super().forwarded(ctx, x))


class _ConvLayer(StateLayer):
    """Layer with a short convolution in place of attention."""

    def __init__(self, config: DecoderConfig, index: int, dtype: DType) -> None:
        super().__init__(config, index, dtype, _CONV)
        self.post_mixer_norm, self.post_ffn_norm = norm(config, dtype), norm(config, dtype)

    def mixed(self, ctx: ExecutionContext, x: Tensor, step: StepInputs, cache: Any) -> tuple[Tensor, Any]:
        """Mixes tokens x [B, T, D] with the convolution, and norms them."""
        x, cache = super().mixed(ctx, x, step, cache)
        return self.post_mixer_norm(ctx, x), cache

    def forwarded(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Computes the normed feed-forward of x [B, T, D]."""
        return self.post_ffn_norm(ctx, super().forwarded(ctx, x))


def _read(fields: ConfigFields) -> DecoderConfig:
    fields = ConfigFields({"head_dim": 128, **fields.values}, fields.where)
    heads, kv_heads, head_size = heads_of(fields)
    layers, biased = fields.integer("num_hidden_layers"), fields.boolean("attention_bias", False)
    turns = [FULL if index % 4 == 2 else _CONV if index % 4 or not index else SLIDING for index in range(layers)]
    kinds = kinds_of_layers(fields, (FULL, SLIDING, _CONV), turns)
    stateful = tuple(kind == _CONV for kind in kinds)
    return llama_kind(
        fields,
        LFM3.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        norm_eps=fields.number("norm_eps", 1e-5),
        activation=Activation.SILU,
        tied=fields.boolean("tie_embedding" if fields.has("tie_embedding") else "tie_word_embeddings", True),
        qkv_bias=biased,
        output_bias=biased,
        qk_norm=True,
        sandwich=fields.boolean("use_sandwich_norm", True),
        gate=OutputGate.HEAD_SIGMOID if fields.boolean("use_attention_gate", True) else None,
        windows=windows_of(fields, kinds, 256),
        mixer=ShortConvConfig(
            layers=stateful, taps=fields.integer("conv_L_cache", 7), biased=fields.boolean("conv_bias", False)
        )
        if any(stateful)
        else None,
        **ropes_of_types(fields, kinds, head_size, _DEFAULTS),
    )


def _layer(config: DecoderConfig, index: int, dtype: DType) -> DecoderLayer | StateLayer:
    if config.mixer is not None and config.mixer.layers[index]:
        return _ConvLayer(config, index, dtype) if config.sandwich else StateLayer(config, index, dtype, _CONV)
    return (_AttentionLayer if config.sandwich else DecoderLayer)(config, index, dtype)


LFM3: Final = Family("Lfm3ForCausalLM", "lfm3", _read, _layer, lambda config: _KEYS)
