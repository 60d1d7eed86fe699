"""GPT-NeoX and Pythia (arXiv:2204.06745): layer norms, attention and feed-forward side by side, biases everywhere."""

from typing import Final

from lang_core import DType, WeightSource
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import Interleaved, Recipe, RecipeOf, Stored
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import activation_of, heads_of, llama_kind
from transformer_core.family._layer import AttentionLayer, DecoderLayer
from transformer_core.family._layer_configs import NormKind
from transformer_core.family._other_layers import ParallelLayer
from transformer_core.layers._rope_config import RopeConfig

_STORED: Final = {
    "model.embed_tokens": "gpt_neox.embed_in",
    "model.norm": "gpt_neox.final_layer_norm",
    "lm_head": "embed_out",
    "self_attn.o_proj": "attention.dense",
    "mlp.up_proj": "mlp.dense_h_to_4h",
    "mlp.down_proj": "mlp.dense_4h_to_h",
}
_PARTS: Final = ("q_proj", "k_proj", "v_proj")


def _read(fields: ConfigFields) -> DecoderConfig:
    heads, kv_heads, head_size = heads_of(fields, kv_heads_default=True)
    known = {"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"}  # the first names of these fields
    renamed = {new: fields.values[old] for new, old in known.items() if fields.has(old)}
    rope_fields = ConfigFields({**renamed, **fields.values}, fields.where)
    biased = fields.boolean("attention_bias", True)
    return llama_kind(
        fields,
        GPT_NEOX.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        rope=RopeConfig.from_hf(rope_fields, head_size, default_share=0.25),
        norm=NormKind.LAYER,
        norm_eps=fields.number("layer_norm_eps", 1e-5),
        activation=activation_of(fields, default="gelu"),
        gated_mlp=False,
        parallel=fields.boolean("use_parallel_residual", True),
        qkv_bias=biased,
        output_bias=biased,
        mlp_bias=True,
    )


def _layer(config: DecoderConfig, index: int, dtype: DType) -> AttentionLayer | DecoderLayer:
    return (ParallelLayer if config.parallel else DecoderLayer)(config, index, dtype)


def _stored(config: DecoderConfig) -> RecipeOf:
    """Returns recipes: most modules have other names, and each head's q, k and v are stored side by side."""

    def recipe_of(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        if source.has(name):  # as transformers 5 may call the head
            return None
        module, _, kind = name.rpartition(".")
        if module in _STORED:
            return Stored(f"{_STORED[module]}.{kind}", shape)
        layer, part = ".".join(module.split(".")[1:3]), ".".join(module.split(".")[3:])
        projection = part.rpartition(".")[2]
        if projection in _PARTS:
            whole = (3 * shape[0], *shape[1:])
            key = f"gpt_neox.{layer}.attention.query_key_value.{kind}"
            return Interleaved(key, whole, config.heads, 3, _PARTS.index(projection))
        return Stored(f"gpt_neox.{layer}.{_STORED.get(part, part)}.{kind}", shape)

    return recipe_of


GPT_NEOX: Final = Family("GPTNeoXForCausalLM", "gpt_neox", _read, _layer, _stored, "gpt_neox.layers.{}")
