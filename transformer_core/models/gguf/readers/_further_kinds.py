"""Further models that are nearly a Llama: InternLM2, MiniCPM, Qwen 1, Jais 2; with experts K-EXAONE and AFMoE."""

from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.models.gguf.readers._architecture import AFTER_PARTS, GgufArchitecture
from transformer_core.models.gguf.readers._common import (
    WINDOW,
    Source,
    Values,
    biased,
    biases,
    common,
    layer_types,
    window,
    with_fields,
)

_SIGMOID: Final = 2  # llama.cpp's number of the function that makes scores of a router's logits
_MINICPM3: Final = {"scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 256}  # what llama.cpp has fixed


def _llama(source: Source) -> Values:
    return common(source, "LlamaForCausalLM", "llama", **biases(source))


def _orion(source: Source) -> Values:
    values = common(source, "OrionForCausalLM", "orion", layer_norm=True)
    return {"rms_norm_eps": values.pop("layer_norm_eps"), **values}


def _minicpm(source: Source) -> Values:
    """Returns the fields of MiniCPM, as those of a Granite, which computes the same."""
    fields = source.fields
    if fields.integer("expert_count", 0, minimum=0):
        fields.refuse("expert_count", "0: MiniCPM-MoE is not built")
    values = common(source, "GraniteForCausalLM", "granite", **biases(source))
    return {
        **values,
        "attention_multiplier": fields.number("attention.scale", values["head_dim"] ** -0.5),
        "embedding_multiplier": fields.number("embedding_scale", 12.0),
        "residual_multiplier": fields.number("residual_scale", 1.4 / values["num_hidden_layers"] ** 0.5),
        "logits_scaling": fields.number("logit_scale", values["hidden_size"] / 256),
    }


def _minicpm3(source: Source) -> Values:
    fields = source.fields
    hidden, heads = fields.integer("embedding_length"), fields.integer("attention.head_count")
    rotated, size = fields.integer("rope.dimension_count"), fields.integer("attention.key_length")
    if not 0 < rotated < size:
        fields.refuse("rope.dimension_count", f"less than attention.key_length ({size})")
    heads_of = {"attention__key_length": rotated, "attention__value_length": rotated}
    values = common(with_fields(source, **heads_of), "MiniCPM3ForCausalLM", "minicpm3")
    del values["head_dim"]
    return {
        **values,
        **_MINICPM3,
        "kv_lora_rank": fields.integer("attention.kv_lora_rank"),
        "q_lora_rank": fields.integer("attention.q_lora_rank"),
        "qk_nope_head_dim": size - rotated,
        "qk_rope_head_dim": rotated,
        "v_head_dim": hidden // heads,
    }


def _qwen(source: Source) -> Values:
    """Returns the fields of Qwen 1, as those of a Qwen2; the file has twice the size of the feed-forward."""
    inner = source.fields.integer("feed_forward_length")
    if inner % 2:
        source.fields.refuse("feed_forward_length", "an even number: twice the size of the feed-forward")
    halved = with_fields(source, feed_forward_length=inner // 2)
    return common(halved, "Qwen2ForCausalLM", "qwen2", use_sliding_window=False)


def _jais2(source: Source) -> Values:
    known = {"hidden_act": "relu2", **biases(source)}
    return common(source, "Jais2ForCausalLM", "jais2", layer_norm=True, **known)


def _bitnet(source: Source) -> Values:
    """Returns the fields of BitNet; llama.cpp has silu, and the embedding as the head."""
    return common(source, "BitNetForCausalLM", "bitnet", hidden_act="silu", attention_bias=biased(source, "attn_q"))


def _granite_moe(source: Source) -> Values:
    fields = source.fields
    shared = fields.integer("expert_shared_feed_forward_length", 0, minimum=0)
    name, kind = ("GraniteMoeShared", "granitemoeshared") if shared else ("GraniteMoe", "granitemoe")
    further: Values = {"shared_intermediate_size": shared} if shared else {}
    return common(
        source,
        f"{name}ForCausalLM",
        kind,
        attention_bias=biased(source, "attn_q"),
        attention_multiplier=fields.number("attention.scale"),
        embedding_multiplier=fields.number("embedding_scale", 1.0),
        residual_multiplier=fields.number("residual_scale", 1.0),
        logits_scaling=fields.number("logit_scale", 1.0),
        num_local_experts=fields.integer("expert_count"),
        num_experts_per_tok=fields.integer("expert_used_count"),
        **further,
    )


def _hunyuan_moe(source: Source) -> Values:
    fields = source.fields
    inner = fields.integer("expert_feed_forward_length")
    if fields.integer("expert_shared_feed_forward_length", inner) != inner:
        fields.refuse("expert_shared_feed_forward_length", f"expert_feed_forward_length ({inner})")
    return common(
        with_fields(source, feed_forward_length=inner),
        "HunYuanMoEV1ForCausalLM",
        "hunyuan_v1_moe",
        attention_bias=biased(source, "attn_q"),
        num_experts=fields.integer("expert_count"),
        moe_topk=fields.integer("expert_used_count"),
    )


def _routed(fields: ConfigFields) -> dict[str, Any]:
    if fields.integer("expert_gating_func", _SIGMOID, minimum=0) not in (0, _SIGMOID):
        fields.refuse("expert_gating_func", f"{_SIGMOID}, the logistic function")
    return {
        "moe_intermediate_size": fields.integer("expert_feed_forward_length"),
        "num_experts": fields.integer("expert_count"),
        "num_experts_per_tok": fields.integer("expert_used_count"),
        "num_shared_experts": fields.integer("expert_shared_count", 1, minimum=0),
        "sliding_window": window(fields),
    }


def _exaone_moe(source: Source) -> Values:
    fields = source.fields
    return common(
        source,
        "ExaoneMoeForCausalLM",
        "exaone_moe",
        **_routed(fields),
        **layer_types(fields, 4),
        first_k_dense_replace=fields.integer("leading_dense_block_count", 0, minimum=0),
        n_group=fields.integer("expert_group_count", 1),
        topk_group=fields.integer("expert_group_used_count", 1),
        norm_topk_prob=fields.boolean("expert_weights_norm", False),
        routed_scaling_factor=fields.number("expert_weights_scale", 1.0),
    )


def _afmoe(source: Source) -> Values:
    fields = source.fields
    return common(
        source,
        "AfmoeForCausalLM",
        "afmoe",
        **_routed(fields),
        **layer_types(fields, 4),
        num_dense_layers=fields.integer("leading_dense_block_count", 0, minimum=0),
        route_scale=fields.number("expert_weights_scale", 1.0),
        mup_enabled=True,  # llama.cpp always scales
    )


_SCALES: Final = frozenset({"embedding_scale", "residual_scale", "attention.scale", "logit_scale"})
_SHARED: Final = frozenset({"expert_count", "expert_shared_count", "leading_dense_block_count", "expert_weights_scale"})
_BITNET: Final = {"self_attn.o_norm": "attn_sub_norm", "mlp.down_norm": "ffn_sub_norm"}

FURTHER_KINDS: Final = (
    GgufArchitecture("internlm2", _llama, permuted=True),
    GgufArchitecture("xverse", _llama, permuted=True),
    GgufArchitecture("exaone", _llama),
    GgufArchitecture("orion", _orion),
    GgufArchitecture("minicpm", _minicpm, _SCALES | {"expert_count"}, permuted=True),
    GgufArchitecture("minicpm3", _minicpm3),
    GgufArchitecture("qwen", _qwen),
    GgufArchitecture("jais2", _jais2),
    GgufArchitecture("bitnet", _bitnet, names=_BITNET),
    GgufArchitecture("granitemoe", _granite_moe, _SCALES | {"expert_count"}, permuted=True),
    GgufArchitecture("hunyuan-moe", _hunyuan_moe, frozenset({"expert_count", "expert_shared_count"})),
    GgufArchitecture("exaone-moe", _exaone_moe, _SHARED | {"expert_group_count", WINDOW}),
    GgufArchitecture("afmoe", _afmoe, _SHARED | {WINDOW}, names=AFTER_PARTS, forms=frozenset({"attn_gate"})),
)
