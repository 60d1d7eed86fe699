"""InternLM2 and 2.5: a Llama whose queries, keys and values are stored group by group, under Meta's names."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import GroupedParts, RecipeOf, RenamedModules, first_of
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, llama_kind
from transformer_core.family._layer import DecoderLayer

_KEYS: Final = RenamedModules(
    {
        "model.embed_tokens": "model.tok_embeddings",
        "lm_head": "output",
        "model.layers.{}.input_layernorm": "model.layers.{}.attention_norm",
        "model.layers.{}.post_attention_layernorm": "model.layers.{}.ffn_norm",
        "model.layers.{}.self_attn.wqkv": "model.layers.{}.attention.wqkv",
        "model.layers.{}.self_attn.o_proj": "model.layers.{}.attention.wo",
        "model.layers.{}.mlp.gate_proj": "model.layers.{}.feed_forward.w1",
        "model.layers.{}.mlp.up_proj": "model.layers.{}.feed_forward.w3",
        "model.layers.{}.mlp.down_proj": "model.layers.{}.feed_forward.w2",
    }
)


def _read(fields: ConfigFields) -> DecoderConfig:
    heads, kv_heads, head_size = heads_of(fields, kv_heads_default=True)
    biased = fields.boolean("bias", True)
    sizes = {"heads": heads, "kv_heads": kv_heads, "head_size": head_size}
    return llama_kind(fields, INTERNLM2.architecture, **sizes, qkv_bias=biased, output_bias=biased)


def _stored(config: DecoderConfig) -> RecipeOf:
    count = config.heads // config.kv_heads
    parts = {"q_proj": (0, count), "k_proj": (count, 1), "v_proj": (count + 1, 1)}
    return first_of(GroupedParts(_KEYS, "wqkv", config.kv_heads, parts), _KEYS)


INTERNLM2: Final = Family("InternLM2ForCausalLM", "internlm2", _read, DecoderLayer, _stored)
