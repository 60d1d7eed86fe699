"""Phi-3.5-MoE (arXiv:2404.14219): a Mixtral with layer norms, biases, and experts that are chosen one by one."""

from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import ExpertKeys
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, llama_kind, one_window, whole_rope
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._layer_configs import ExpertsConfig, NormKind
from transformer_core.layers._rope_config import RopeConfig
from transformer_core.layers._routing import Routing, Scoring

_ROPE_BASE: Final = 1e6  # transformers' default
_CHOSEN: Final = 2


def _read(fields: ConfigFields) -> DecoderConfig:
    heads, kv_heads, head_size = heads_of(fields)
    biased, tied = fields.boolean("attention_bias", False), fields.boolean("tie_word_embeddings", False)
    head_bias = fields.boolean("lm_head_bias", False)
    if fields.integer("num_experts_per_tok", _CHOSEN) != _CHOSEN:
        fields.refuse("num_experts_per_tok", f"{_CHOSEN}, which the router always chooses")
    layers, inner = fields.integer("num_hidden_layers"), fields.integer("intermediate_size")
    routing = Routing(
        experts=fields.integer("num_local_experts"),
        chosen=_CHOSEN,
        scoring=Scoring.MIXER,
        nearness=2 * fields.number("router_jitter_noise", 0.01, above=-1.0),
    )
    return llama_kind(
        fields,
        PHIMOE.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        rope=_rope(fields, head_size),
        windows=one_window(fields, default=None),
        norm=NormKind.LAYER,
        norm_eps=fields.number("rms_norm_eps", 1e-5),
        tied=tied,
        qkv_bias=biased,
        output_bias=biased,
        head_bias=head_bias,
        experts=ExpertsConfig(routing=routing, inner=inner, layers=(True,) * layers),
    )


def _rope(fields: ConfigFields, head_size: int) -> RopeConfig:
    """Reads RoPE; of a long one transformers 5 takes the short factors at every length."""
    values: dict[str, Any] = dict(fields.values)
    for name in ("rope_parameters", "rope_scaling"):
        if not fields.has(name):
            continue
        rope = fields.object(name)
        kind = rope.choice("rope_type" if rope.has("rope_type") else "type", ("default", "longrope", "su"), "default")
        if kind == "default":
            continue
        scale = rope.number("short_mscale")
        if rope.number("long_mscale") != scale:
            rope.refuse("long_mscale", f"short_mscale ({scale:g}): a scale that changes with the length is not built")
        short = rope.values.get("short_factor")
        values[name] = {**rope.values, "long_factor": short, "attention_factor": scale}
    return whole_rope(ConfigFields(values, fields.where), PHIMOE.architecture, head_size, default_base=_ROPE_BASE)


_KEYS: Final = ExpertKeys(layer="block_sparse_moe", gate="w1", up="w3", down="w2")
PHIMOE: Final = Family("PhimoeForCausalLM", "phimoe", _read, DecoderLayer, lambda config: _KEYS)
