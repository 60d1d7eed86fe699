"""Mixtures of experts: Qwen3-MoE, gpt-oss."""

from typing import Final

from transformer_core.models.gguf.readers._architecture import GgufArchitecture
from transformer_core.models.gguf.readers._common import WINDOW, Source, Values, biased, common, with_fields


def _inner_only(source: Source) -> Source:
    """Returns the source with F of an expert as the model's F, which such files do not have."""
    fields = source.fields
    inner = fields.integer("expert_feed_forward_length")
    return with_fields(source, feed_forward_length=fields.values.get("feed_forward_length", inner))


def _qwen3_moe(source: Source) -> Values:
    fields = source.fields
    return common(
        _inner_only(source),
        "Qwen3MoeForCausalLM",
        "qwen3_moe",
        attention_bias=biased(source, "attn_q"),
        use_sliding_window=False,
        moe_intermediate_size=fields.integer("expert_feed_forward_length"),
        num_experts=fields.integer("expert_count"),
        num_experts_per_tok=fields.integer("expert_used_count"),
        norm_topk_prob=fields.boolean("expert_weights_norm", True),  # llama.cpp always does
        decoder_sparse_step=1,
        mlp_only_layers=[],
    )


def _gpt_oss(source: Source) -> Values:
    fields = source.fields
    values = common(
        _inner_only(source),
        "GptOssForCausalLM",
        "gpt_oss",
        attention_bias=biased(source, "attn_q"),
        num_local_experts=fields.integer("expert_count"),
        num_experts_per_tok=fields.integer("expert_used_count"),
        sliding_window=fields.integer(WINDOW),
    )
    values["intermediate_size"] = fields.integer("expert_feed_forward_length")
    if "rope_scaling" in values:
        values["rope_scaling"]["truncate"] = False  # of this family, which no field says
    return values


_GPT_OSS_NAMES: Final = {"post_attention_layernorm": "post_attention_norm"}

EXPERTS: Final = (
    GgufArchitecture("qwen3moe", _qwen3_moe, frozenset({"expert_count"})),
    GgufArchitecture("gpt-oss", _gpt_oss, frozenset({"expert_count", WINDOW}), names=_GPT_OSS_NAMES),
)
