"""ChatGLM 2 and 3 and GLM-4-9B in their authors' form: a GLM under Megatron's names."""

from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import FusedKeys, Recipe, RecipeOf, RenamedModules, first_of
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import llama_kind
from transformer_core.family._layer import DecoderLayer
from transformer_core.layers._feed_forward import Activation
from transformer_core.layers._rope_config import RopeConfig, RopeMode

_LAYER: Final = "transformer.encoder.layers.{}"
_KEYS: Final = RenamedModules(
    {
        "model.embed_tokens": "transformer.embedding.word_embeddings",
        "model.norm": "transformer.encoder.final_layernorm",
        "lm_head": "transformer.output_layer",
        "model.layers.{}.input_layernorm": f"{_LAYER}.input_layernorm",
        "model.layers.{}.post_attention_layernorm": f"{_LAYER}.post_attention_layernorm",
        "model.layers.{}.self_attn.o_proj": f"{_LAYER}.self_attention.dense",
        "model.layers.{}.mlp.down_proj": f"{_LAYER}.mlp.dense_4h_to_h",
    }
)
_KNOWN: Final = {
    "rmsnorm": True,
    "post_layer_norm": True,
    "apply_residual_connection_post_layernorm": False,
    "add_bias_linear": False,
    "original_rope": True,
}


def _read(fields: ConfigFields, architecture: str = "ChatGLMModel") -> DecoderConfig:
    for name, value in _KNOWN.items():
        if fields.boolean(name, value) is not value:
            fields.refuse(name, f"{str(value).lower()}, or no such field")
    values = {
        "vocab_size": "padded_vocab_size",
        "num_hidden_layers": "num_layers",
        "intermediate_size": "ffn_hidden_size",
    }
    fields = fields.renamed(values)
    heads, head_size = fields.integer("num_attention_heads"), fields.integer("kv_channels", 128)
    grouped = fields.boolean("multi_query_attention", False)
    kv_heads = fields.integer("multi_query_group_num", 1) if grouped else heads
    if heads % kv_heads:
        fields.refuse("multi_query_group_num", f"a divisor of num_attention_heads ({heads})")
    if head_size % 4:
        fields.refuse("kv_channels", "a multiple of 4: half of a head is rotated, in pairs")
    rope: dict[str, Any] = {"rotated": head_size // 2, "mode": RopeMode.INTERLEAVED}
    return llama_kind(
        fields,
        architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        rope=RopeConfig(
            base=10000.0 * fields.number("rope_ratio", 1.0), trained_length=fields.integer("seq_length", 2048), **rope
        ),
        norm_eps=fields.number("layernorm_epsilon", 1e-5),
        activation=Activation.SILU,
        qkv_bias=fields.boolean("add_qkv_bias", False),
    )


def _read_generating(fields: ConfigFields) -> DecoderConfig:
    return _read(fields, CHATGLM_GENERATING.architecture)


def _stored(config: DecoderConfig) -> RecipeOf:
    """Returns recipes: queries, keys and values are one projection, gates and ups another."""
    q, kv = config.heads * config.head_size, config.kv_heads * config.head_size
    attention = {"self_attention.query_key_value": [("q_proj", q), ("k_proj", kv), ("v_proj", kv)]}
    inner = config.intermediate
    fused = FusedKeys({**attention, "mlp.dense_h_to_4h": [("gate_proj", inner), ("up_proj", inner)]})

    def parts(name: str, shape: tuple[int, ...], source: Any) -> Recipe | None:
        return fused(
            name.replace("model.", "transformer.encoder.", 1).replace("self_attn", "self_attention"), shape, source
        )

    return first_of(parts, _KEYS)


CHATGLM: Final = Family("ChatGLMModel", "chatglm", _read, DecoderLayer, _stored, _LAYER)
CHATGLM_GENERATING: Final = Family(
    "ChatGLMForConditionalGeneration", "chatglm", _read_generating, DecoderLayer, _stored, _LAYER
)
