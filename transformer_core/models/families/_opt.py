"""OPT (arXiv:2205.01068) and BioGPT: learned positions from the third row on, layer norms, biases everywhere."""

from typing import Final

from lang_core import DType, WeightSource
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import Cut, Recipe, RecipeOf, RenamedModules
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import activation_of, heads_of, token_ids_of
from transformer_core.family._layer import AttentionLayer, DecoderLayer
from transformer_core.family._layer_configs import NormKind
from transformer_core.family._other_layers import NormedSumLayer
from transformer_core.layers._rope_config import RopeConfig, RopeKind

_OFFSET: Final = 2  # rows before that of the first position
_LAYER: Final = {
    "input_layernorm": "self_attn_layer_norm",
    "post_attention_layernorm": "final_layer_norm",
    "self_attn.q_proj": "self_attn.q_proj",
    "self_attn.k_proj": "self_attn.k_proj",
    "self_attn.v_proj": "self_attn.v_proj",
    "self_attn.o_proj": "self_attn.out_proj",
    "mlp.up_proj": "fc1",
    "mlp.down_proj": "fc2",
}


def fairseq_config(fields: ConfigFields, architecture: str, **known: object) -> DecoderConfig:
    """Reads the common fields of OPT, BioGPT and XGLM.

    Args:
        fields: the config.json.
        architecture: name of the architecture.
        **known: attributes of ``DecoderConfig`` that the family reads itself.
    """
    heads, _, head_size = heads_of(fields, kv_heads_default=True)
    layers, positions = fields.integer("num_hidden_layers"), fields.integer("max_position_embeddings", 2048)
    return DecoderConfig(
        **{
            "architecture": architecture,
            "vocabulary": fields.integer("vocab_size"),
            "hidden": fields.integer("hidden_size"),
            "layers": layers,
            "heads": heads,
            "kv_heads": heads,
            "head_size": head_size,
            "norm": NormKind.LAYER,
            "norm_eps": 1e-5,
            "rope": RopeConfig(rotated=2, trained_length=positions),
            "rope_kinds": (RopeKind.NONE,) * layers,
            "windows": (None,) * layers,
            "gated_mlp": False,
            "qkv_bias": True,
            "output_bias": True,
            "mlp_bias": True,
            "tied": fields.boolean("tie_word_embeddings", True),
            **token_ids_of(fields),
            **known,
        }
    )


def fairseq_keys(above: str, norm: str, head: str = "lm_head") -> RenamedModules:
    """Returns the names of the modules of a checkpoint.

    Args:
        above: path of the decoder.
        norm: name of the norm after the last layer.
        head: path of the output projection.
    """
    names = {
        "model.embed_tokens": f"{above}.embed_tokens",
        "model.embed_positions": f"{above}.embed_positions",
        "model.norm": f"{above}.{norm}",
        "lm_head": head,
        **{f"model.layers.{{}}.{name}": f"{above}.layers.{{}}.{stored}" for name, stored in _LAYER.items()},
    }
    return RenamedModules(names, optional="model.")


def after_rows(keys: RenamedModules) -> RecipeOf:
    """Returns the recipes of a model with the first position in the third row of the table."""

    def recipe_of(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        if name != "model.embed_positions.weight":
            return keys(name, shape, source)
        stored = (shape[0] + _OFFSET, *shape[1:])
        return Cut(keys.key(name, source), stored, 0, _OFFSET, stored[0])

    return recipe_of


def _read(fields: ConfigFields) -> DecoderConfig:
    hidden, before = fields.integer("hidden_size"), fields.boolean("do_layer_norm_before", True)
    if fields.integer("word_embed_proj_dim", hidden) != hidden:
        fields.refuse("word_embed_proj_dim", f"hidden_size ({hidden}): projections of embeddings are not built")
    biased = fields.boolean("enable_bias", True)
    return fairseq_config(
        fields,
        OPT.architecture,
        intermediate=fields.integer("ffn_dim", 4 * hidden),
        activation=activation_of(fields, "activation_function", "relu"),
        learned_positions=fields.integer("max_position_embeddings", 2048),
        norm=NormKind.LAYER if fields.boolean("layer_norm_elementwise_affine", True) else NormKind.LAYER_WITHOUT_WEIGHT,
        qkv_bias=biased,
        output_bias=biased,
        mlp_bias=biased,
        final_norm=before and not fields.boolean("_remove_final_layer_norm", False),
        post_norm=not before,
    )


def _layer(config: DecoderConfig, index: int, dtype: DType) -> AttentionLayer | DecoderLayer:
    return (NormedSumLayer if config.post_norm else DecoderLayer)(config, index, dtype)


def _read_biogpt(fields: ConfigFields) -> DecoderConfig:
    hidden = fields.integer("hidden_size")
    return fairseq_config(
        fields,
        BIOGPT.architecture,
        intermediate=fields.integer("intermediate_size", 4096),
        activation=activation_of(fields, default="gelu"),
        learned_positions=fields.integer("max_position_embeddings", 1024),
        embedding_scale=hidden**0.5 if fields.boolean("scale_embedding", True) else 1.0,
    )


OPT: Final = Family(
    "OPTForCausalLM",
    "opt",
    _read,
    _layer,
    lambda config: after_rows(fairseq_keys("model.decoder", "final_layer_norm")),
    "*decoder.layers.{}",
)
BIOGPT: Final = Family(
    "BioGptForCausalLM",
    "biogpt",
    _read_biogpt,
    DecoderLayer,
    lambda config: after_rows(fairseq_keys("biogpt", "layer_norm", "output_projection")),
    "biogpt.layers.{}",
)
