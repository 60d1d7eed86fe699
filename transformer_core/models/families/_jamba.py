"""Jamba (arXiv:2403.19887) and Bamba: a Mamba in most layers, attention in others; Jamba has experts and no RoPE."""

from typing import Any, Final

from lang_core import WeightSource
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import ExpertKeys, Recipe, RenamedModules, Stored, fused_experts
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import activation_of, heads_of, llama_kind
from transformer_core.family._layer import hybrid_layer
from transformer_core.family._layer_configs import ExpertsConfig, Mamba2Config, MambaConfig
from transformer_core.family._mamba_fields import mamba_sizes, no_rope
from transformer_core.layers._mamba import MambaSizes, StepNorms
from transformer_core.layers._rope_config import RopeConfig
from transformer_core.layers._routing import Routing
from transformer_core.models.families._mamba import step_rank

_PROJECTIONS: Final = ("gate_proj", "up_proj", "down_proj")
_STORED: Final = {
    "model.norm": "model.final_layernorm",
    "model.layers.{}.post_attention_layernorm": "model.layers.{}.pre_ff_layernorm",
    "model.layers.{}.mlp.gate": "model.layers.{}.feed_forward.router",
    **{f"model.layers.{{}}.mlp.{name}": f"model.layers.{{}}.feed_forward.{name}" for name in _PROJECTIONS},
}
_KEYS: Final = RenamedModules(_STORED)
_EXPERTS: Final = ExpertKeys(layer="feed_forward")


def _read(fields: ConfigFields) -> DecoderConfig:
    fields = fields.renamed({"num_experts": "num_local_experts"})
    heads, kv_heads, head_size = heads_of(fields, kv_heads_default=True)
    layers, hidden = fields.integer("num_hidden_layers"), fields.integer("hidden_size")
    every, first = fields.integer("attn_layer_period", 8), fields.integer("attn_layer_offset", 4, minimum=0)
    sizes = MambaSizes(
        inner=hidden * fields.integer("mamba_expand", 2),
        state_size=fields.integer("mamba_d_state", 16),
        rank=step_rank(fields, "mamba_dt_rank", hidden),
        taps=fields.integer("mamba_d_conv", 4),
        conv_bias=fields.boolean("mamba_conv_bias", True),
        bias=fields.boolean("mamba_proj_bias", False),
        activation=activation_of(fields, default="silu"),
        norms=StepNorms.WEIGHTED,
        norm_eps=fields.number("rms_norm_eps", 1e-6),
    )
    stateful = tuple(index % every != first for index in range(layers))
    return llama_kind(
        fields,
        JAMBA.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        mixer=MambaConfig(layers=stateful, sizes=sizes) if any(stateful) else None,
        experts=_experts(fields, layers),
        **no_rope(layers),
    )


def _experts(fields: ConfigFields, layers: int) -> ExpertsConfig | None:
    every, first = fields.integer("expert_layer_period", 2), fields.integer("expert_layer_offset", 1, minimum=0)
    count = fields.integer("num_experts", 16)
    sparse = tuple(count > 1 and index % every == first for index in range(layers))
    if not any(sparse):
        return None
    routing = Routing(experts=count, chosen=fields.integer("num_experts_per_tok", 2), normalized=False)
    return ExpertsConfig(routing=routing, inner=fields.integer("intermediate_size"), layers=sparse)


def _stored(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
    if ".mlp.experts." not in name:
        return _KEYS(name, shape, source)
    stored = name.replace(".mlp.", ".feed_forward.", 1)
    if source.has(f"{stored.rpartition('.')[0]}.down_proj"):  # all experts in one tensor, as transformers 5 has them
        return fused_experts(stored, shape, source) or Stored(stored, shape)
    return _EXPERTS(name, shape, source)


def _read_bamba(fields: ConfigFields) -> DecoderConfig:
    heads, kv_heads, head_size = heads_of(fields, kv_heads_default=True)
    layers, hidden = fields.integer("num_hidden_layers"), fields.integer("hidden_size")
    listed = fields.values.get("attn_layer_indices") or []
    if not isinstance(listed, list) or not all(type(index) is int and 0 <= index < layers for index in listed):
        fields.refuse("attn_layer_indices", f"a list of numbers below {layers} (num_hidden_layers)")
    stateful = tuple(index not in listed for index in range(layers))
    mixer: dict[str, Any] = {}
    if any(stateful):
        biased = fields.boolean("mamba_proj_bias", False)
        sizes = mamba_sizes(fields, hidden * fields.integer("mamba_expand", 2), output_bias=biased)
        mixer = {"mixer": Mamba2Config(layers=stateful, sizes=sizes)}
    biased = fields.boolean("attention_bias", False)
    return llama_kind(
        fields,
        BAMBA.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        rope=RopeConfig.from_hf(fields, head_size, default_share=0.5),
        norm_eps=fields.number("rms_norm_eps", 1e-5),
        qkv_bias=biased,
        output_bias=biased,
        mlp_bias=fields.boolean("mlp_bias", False),
        **mixer,
    )


JAMBA: Final = Family("JambaForCausalLM", "jamba", _read, hybrid_layer, lambda config: _stored)
BAMBA: Final = Family("BambaForCausalLM", "bamba", _read_bamba, hybrid_layer, lambda config: _KEYS)
