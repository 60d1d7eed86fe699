"""DeepSeek-MoE (arXiv:2401.06066), Ling and Ring (BailingMoE): a Llama with experts beside shared ones."""

from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import ExpertKeys, GroupedParts, RecipeOf, RenamedModules, first_of
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, llama_kind
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._layer_configs import ExpertsConfig
from transformer_core.layers._routing import Routing

_LAYER: Final = {
    "self_attn.query_key_value": "attention.query_key_value",
    "self_attn.o_proj": "attention.dense",
    "self_attn.q_norm": "attention.query_layernorm",
    "self_attn.k_norm": "attention.key_layernorm",
}
_KEYS: Final = RenamedModules(
    {
        "model.embed_tokens": "model.word_embeddings",
        **{f"model.layers.{{}}.{name}": f"model.layers.{{}}.{stored}" for name, stored in _LAYER.items()},
    }
)
_NOT_BUILT: Final = {
    "multi_gate": "routers of their own for pictures and sound",
    "norm_head": "output projections of normed columns",
    "norm_softmax": "normed logits",
}


def _experts(fields: ConfigFields, names: tuple[str, str], every: int = 1) -> ExpertsConfig:
    """Reads experts; ``names`` are the fields with the number of routed and of shared ones."""
    layers, dense = fields.integer("num_hidden_layers"), fields.integer("first_k_dense_replace", 0, minimum=0)
    inner = fields.integer("moe_intermediate_size")
    routing = Routing(
        experts=fields.integer(names[0]),
        chosen=fields.integer("num_experts_per_tok"),
        normalized=fields.boolean("norm_topk_prob", False),
    )
    return ExpertsConfig(
        routing=routing,
        inner=inner,
        layers=tuple(index >= dense and index % every == 0 for index in range(layers)),
        shared=inner * fields.integer(names[1], 0, minimum=0) if fields.has(names[1]) else 0,
    )


def _read(fields: ConfigFields) -> DecoderConfig:
    fields.choice("scoring_func", ("softmax",), "softmax")
    heads, kv_heads, head_size = heads_of(fields, kv_heads_default=True)
    biased = fields.boolean("attention_bias", False)
    known: dict[str, Any] = {}
    if fields.has("n_routed_experts"):
        known["experts"] = _experts(
            fields, ("n_routed_experts", "n_shared_experts"), fields.integer("moe_layer_freq", 1)
        )
    return llama_kind(
        fields,
        DEEPSEEK_MOE.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        qkv_bias=biased,
        output_bias=biased,
        **known,
    )


def _read_bailing(fields: ConfigFields) -> DecoderConfig:
    for name, use in _NOT_BUILT.items():
        if fields.boolean(name, False):
            fields.refuse(name, f"false: {use} are not built")
    heads, kv_heads, head_size = heads_of(fields, kv_heads_default=True)
    return llama_kind(
        fields,
        BAILING_MOE.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        qkv_bias=fields.boolean("use_qkv_bias", False),
        output_bias=fields.boolean("use_bias", False),
        experts=_experts(fields, ("num_experts", "num_shared_experts")),
    )


def bailing_keys(config: DecoderConfig) -> RecipeOf:
    """Returns the recipes of Ling's names: fused queries, keys and values, and experts one by one."""
    heads, kv_heads = config.heads, config.kv_heads
    parts = {"q_proj": (0, heads), "k_proj": (heads, kv_heads), "v_proj": (heads + kv_heads, kv_heads)}
    experts = ExpertKeys(correction="gate.expert_bias")
    return first_of(GroupedParts(_KEYS, "query_key_value", 1, parts), experts, _KEYS)


DEEPSEEK_MOE: Final = Family("DeepseekForCausalLM", "deepseek", _read, DecoderLayer, lambda config: ExpertKeys())
BAILING_MOE: Final = Family("BailingMoeForCausalLM", "bailing_moe", _read_bailing, DecoderLayer, bailing_keys)
