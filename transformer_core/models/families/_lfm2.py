"""LFM2: short convolutions with gates in most layers, attention with normed heads in the others."""

from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedModules
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, kinds_of_layers, llama_kind, whole_rope
from transformer_core.family._layer import hybrid_layer
from transformer_core.family._layer_configs import ShortConvConfig
from transformer_core.layers._feed_forward import Activation

_CONV: Final = "conv"
_FULL: Final = "full_attention"
_IN_LAYER: Final = {
    "input_layernorm": "operator_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.o_proj": "self_attn.out_proj",
    "self_attn.q_norm": "self_attn.q_layernorm",
    "self_attn.k_norm": "self_attn.k_layernorm",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.up_proj": "feed_forward.w3",
    "mlp.down_proj": "feed_forward.w2",
}
LFM2_KEYS: Final = RenamedModules(
    {
        "model.norm": "model.embedding_norm",
        **{f"model.layers.{{}}.{name}": f"model.layers.{{}}.{stored}" for name, stored in _IN_LAYER.items()},
    }
)


def lfm2_kind(fields: ConfigFields, architecture: str, default: list[str] | None, **known: Any) -> DecoderConfig:
    """Reads the common fields of LFM2 and LFM2-MoE; arguments as of ``llama_kind`` and ``kinds_of_layers``."""
    heads, kv_heads, head_size = heads_of(fields)
    tied = "tie_embedding" if fields.has("tie_embedding") else "tie_word_embeddings"
    return llama_kind(
        fields,
        architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        rope=whole_rope(fields, architecture, head_size, default_base=1e6),
        norm_eps=fields.number("norm_eps", 1e-5),
        activation=Activation.SILU,
        tied=fields.boolean(tied, True),
        qk_norm=True,
        mixer=ShortConvConfig(
            layers=tuple(kind == _CONV for kind in kinds_of_layers(fields, (_CONV, _FULL), default)),
            taps=fields.integer("conv_L_cache", 3),
            biased=fields.boolean("conv_bias", False),
        ),
        **known,
    )


def _read(fields: ConfigFields) -> DecoderConfig:
    layers = fields.integer("num_hidden_layers")
    attending = fields.values.get("full_attn_idxs")
    listed = range(layers) if attending is None else attending
    if not isinstance(listed, list | range) or any(index not in range(layers) for index in listed):
        fields.refuse("full_attn_idxs", f"a list of numbers of layers, 0 to {layers - 1}")
    default = [_FULL if index in listed else _CONV for index in range(layers)]
    sized = ConfigFields({**fields.values, "intermediate_size": _inner(fields)}, fields.where)
    return lfm2_kind(sized, LFM2.architecture, default)


def _inner(fields: ConfigFields) -> int:
    """Returns F, which is two thirds of the file's, rounded up to a multiple."""
    inner = fields.integer("block_ff_dim" if fields.has("block_ff_dim") else "intermediate_size", 12288)
    if not fields.boolean("block_auto_adjust_ff_dim", True):
        return inner
    inner = int(2 * inner / 3)
    if fields.values.get("block_ffn_dim_multiplier", 1.0) is None:
        return inner
    multiple = fields.integer("block_multiple_of", 256)
    return -(-int(fields.number("block_ffn_dim_multiplier", 1.0) * inner) // multiple) * multiple


LFM2: Final = Family("Lfm2ForCausalLM", "lfm2", _read, hybrid_layer, lambda config: LFM2_KEYS)
