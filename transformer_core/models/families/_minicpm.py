"""MiniCPM 1, 2 and 4 (arXiv:2404.06395): a Llama with scales of embeddings, residuals and logits."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, llama_kind
from transformer_core.family._layer import DecoderLayer


def _read(fields: ConfigFields) -> DecoderConfig:
    heads, kv_heads, head_size = heads_of(fields, kv_heads_default=True)
    layers, hidden = fields.integer("num_hidden_layers"), fields.integer("hidden_size")
    biased = fields.boolean("attention_bias", False)
    if fields.has("sparse_config"):
        fields.refuse("sparse_config", "null, or no such field: its attention to chosen blocks is not built")
    if fields.integer("num_experts", 0, minimum=0):
        fields.refuse("num_experts", "0, or no such field: MiniCPM-MoE is not built")
    return llama_kind(
        fields,
        MINICPM.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        qkv_bias=biased,
        output_bias=biased,
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        tied=fields.boolean("tie_word_embeddings", True),
        embedding_scale=fields.number("scale_emb", 1.0),
        residual_scale=fields.number("scale_depth", 1.0) / layers**0.5,
        logits_scale=fields.integer("dim_model_base", 1) / hidden,
    )


MINICPM: Final = Family("MiniCPMForCausalLM", "minicpm", _read, DecoderLayer)
