"""MiniCPM3 and Youtu-LLM: latent attention in dense layers; MiniCPM3 scales embeddings, residuals and logits."""

from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._layer import DecoderLayer
from transformer_core.layers._rope_config import RopeMode
from transformer_core.models.families._deepseek import latent_kind

_LATENT: Final = {"kv_lora_rank": 256, "q_lora_rank": 768, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32}
_YOUTU: Final = {
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}


def _read(fields: ConfigFields) -> DecoderConfig:
    hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    layers = fields.integer("num_hidden_layers")
    values: dict[str, Any] = {**_LATENT, "scale_depth": 1.4, "dim_model_base": 256, **fields.values}
    values["v_head_dim"] = fields.integer("v_head_dim", hidden // heads)
    fields = ConfigFields(values, fields.where)
    return latent_kind(
        fields,
        MINICPM3.architecture,
        mode=RopeMode.SPLIT_HALF,
        norm_eps=fields.number("rms_norm_eps", 1e-5),
        mlp_bias=fields.boolean("mlp_bias", False),
        tied=fields.boolean("tie_word_embeddings", True),
        embedding_scale=fields.number("scale_emb", 12.0),
        residual_scale=fields.number("scale_depth", layers**0.5) / layers**0.5,
        logits_scale=fields.integer("dim_model_base", hidden) / hidden,
    )


def _read_youtu(fields: ConfigFields) -> DecoderConfig:
    fields = ConfigFields({**_YOUTU, **fields.values}, fields.where)
    return latent_kind(
        fields,
        YOUTU.architecture,
        mode=RopeMode.INTERLEAVED if fields.boolean("rope_interleave", True) else RopeMode.SPLIT_HALF,
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        tied=fields.boolean("tie_word_embeddings", True),
    )


MINICPM3: Final = Family("MiniCPM3ForCausalLM", "minicpm3", _read, DecoderLayer)
YOUTU: Final = Family("YoutuForCausalLM", "youtu", _read_youtu, DecoderLayer)
