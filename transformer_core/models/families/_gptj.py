"""GPT-J and CodeGen (arXiv:2203.13474): interleaved RoPE, attention and feed-forward side by side behind one norm."""

from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import GroupedParts, RecipeOf, RenamedModules, first_of
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import activation_of, heads_of, llama_kind
from transformer_core.family._layer_configs import NormKind
from transformer_core.layers._rope_config import RopeConfig, RopeMode
from transformer_core.models.families._cohere import one_norm_layer

NAMES: Final = {
    "hidden_size": "n_embd",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
    "max_position_embeddings": "n_positions",
}
_STORED: Final = {
    "model.embed_tokens": "transformer.wte",
    "model.norm": "transformer.ln_f",
    "model.layers.{}.input_layernorm": "transformer.h.{}.ln_1",
    **{f"model.layers.{{}}.self_attn.{name}_proj": f"transformer.h.{{}}.attn.{name}_proj" for name in "qkv"},
    "model.layers.{}.self_attn.qkv_proj": "transformer.h.{}.attn.qkv_proj",
    "model.layers.{}.self_attn.o_proj": "transformer.h.{}.attn.out_proj",
    "model.layers.{}.mlp.up_proj": "transformer.h.{}.mlp.fc_in",
    "model.layers.{}.mlp.down_proj": "transformer.h.{}.mlp.fc_out",
}
_KEYS: Final = RenamedModules(_STORED)
_GROUPS: Final = 4  # of CodeGen's fused projection, each with queries, values and keys


def _read(fields: ConfigFields, architecture: str = "GPTJForCausalLM", **known: Any) -> DecoderConfig:
    fields = fields.renamed(NAMES)
    heads, _, head_size = heads_of(fields, kv_heads_default=True)
    rotated = fields.integer("rotary_dim", 64)
    if rotated > head_size or rotated % 2:
        fields.refuse("rotary_dim", f"an even number of at most {head_size}, the size of a head")
    return llama_kind(
        fields,
        architecture,
        heads=heads,
        kv_heads=heads,
        head_size=head_size,
        intermediate=fields.integer("n_inner", 4 * fields.integer("hidden_size")),
        rope=RopeConfig(
            rotated=rotated,
            trained_length=fields.integer("max_position_embeddings", 2048),
            mode=RopeMode.INTERLEAVED,
        ),
        norm=NormKind.LAYER,
        norm_eps=fields.number("layer_norm_epsilon", 1e-5),
        activation=activation_of(fields, "activation_function", "gelu_new"),
        gated_mlp=False,
        mlp_bias=True,
        head_bias=True,
        parallel=True,
        **known,
    )


def _read_codegen(fields: ConfigFields) -> DecoderConfig:
    config = _read(fields, CODEGEN.architecture)
    if config.heads % _GROUPS:
        fields.refuse("n_head", f"a multiple of {_GROUPS}")
    return config


def _fused(config: DecoderConfig) -> RecipeOf:
    parts = {"q_proj": (0, 1), "v_proj": (1, 1), "k_proj": (2, 1)}
    return first_of(GroupedParts(_KEYS, "qkv_proj", _GROUPS, parts), _KEYS)


GPTJ: Final = Family("GPTJForCausalLM", "gptj", _read, one_norm_layer, lambda config: _KEYS, "*h.{}")
CODEGEN: Final = Family("CodeGenForCausalLM", "codegen", _read_codegen, one_norm_layer, _fused, "*h.{}")
