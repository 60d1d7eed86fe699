"""EXAONE 3 and 3.5 (arXiv:2408.03541): a Llama under GPT-2's names."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedModules
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import activation_of, heads_of, llama_kind
from transformer_core.family._layer import DecoderLayer

_KEYS: Final = RenamedModules(
    {
        "model.embed_tokens": "transformer.wte",
        "model.norm": "transformer.ln_f",
        "model.layers.{}.input_layernorm": "transformer.h.{}.ln_1",
        "model.layers.{}.post_attention_layernorm": "transformer.h.{}.ln_2",
        **{
            f"model.layers.{{}}.self_attn.{name}_proj": f"transformer.h.{{}}.attn.attention.{name}_proj"
            for name in "qkv"
        },
        "model.layers.{}.self_attn.o_proj": "transformer.h.{}.attn.attention.out_proj",
        "model.layers.{}.mlp.gate_proj": "transformer.h.{}.mlp.c_fc_0",
        "model.layers.{}.mlp.up_proj": "transformer.h.{}.mlp.c_fc_1",
        "model.layers.{}.mlp.down_proj": "transformer.h.{}.mlp.c_proj",
    }
)


def _read(fields: ConfigFields) -> DecoderConfig:
    fields = fields.renamed({"num_hidden_layers": "num_layers"})
    heads, kv_heads, head_size = heads_of(fields, kv_heads_default=True)
    return llama_kind(
        fields,
        EXAONE.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        norm_eps=fields.number("layer_norm_epsilon", 1e-5),
        activation=activation_of(fields, "activation_function", "silu"),
    )


EXAONE: Final = Family("ExaoneForCausalLM", "exaone", _read, DecoderLayer, lambda config: _KEYS, "transformer.h.{}")
