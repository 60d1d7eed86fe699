"""DeepSeek-V3.2 and GLM-5 (arXiv:2512.02556): a DeepSeek-V3 whose queries see the keys that an indexer chooses."""

from dataclasses import replace
from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import ExpertKeys, RecipeOf
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import kinds_of_layers
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._stored_head import layered_head
from transformer_core.layers._indexer import IndexerConfig
from transformer_core.layers._rope_config import RopeMode
from transformer_core.models.families._deepseek import grouped_experts, latent_kind

_INDEXED: Final = ("indexed_attention",)
_SHARING: Final = ("indexer_types", "index_topk_pattern", "index_topk_freq")


def _read(fields: ConfigFields) -> DecoderConfig:
    return _indexed(fields, DEEPSEEK_V32.architecture, RopeMode.SPLIT_HALF, heads=64, groups=(8, 4))


def _read_glm(fields: ConfigFields) -> DecoderConfig:
    for name in _SHARING:
        value = fields.values.get(name)
        listed = isinstance(value, list | str) and all(one in ("full", "F") for one in value)
        if value is not None and value != 1 and not listed:
            fields.refuse(name, "full in every layer: choices of keys that layers share are not built")
    return _indexed(fields, GLM_MOE_DSA.architecture, RopeMode.INTERLEAVED, heads=32, groups=(1, 1))


def _indexed(
    fields: ConfigFields, architecture: str, mode: RopeMode, *, heads: int, groups: tuple[int, int]
) -> DecoderConfig:
    if not fields.has("q_lora_rank"):
        fields.refuse("q_lora_rank", "an integer: queries are always compressed")
    layers, extra = fields.integer("num_hidden_layers"), fields.integer("num_nextn_predict_layers", 0, minimum=0)
    kinds_of_layers(fields, _INDEXED, _INDEXED * layers)
    experts = grouped_experts(fields, dense=3, scale=2.5, groups=groups[0], chosen_groups=groups[1])
    default = ["sparse" if sparse else "dense" for sparse in experts.layers]
    kinds = kinds_of_layers(fields, ("dense", "sparse"), default, "mlp_layer_types")
    size, rotated = fields.integer("index_head_dim", 128), fields.integer("qk_rope_head_dim")
    if size < rotated:
        fields.refuse("index_head_dim", f"at least qk_rope_head_dim ({rotated})")
    indexer = IndexerConfig(
        fields.integer("index_n_heads", heads), size, fields.integer("index_topk", 2048), rope_mode=mode
    )
    values = {name: value for name, value in fields.values.items() if name != "layer_types"}
    return latent_kind(
        ConfigFields(values, fields.where),
        architecture,
        indexer=indexer,
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        experts=replace(experts, layers=tuple(kind == "sparse" for kind in kinds)),
        extra_layers=extra,
    )


def _stored(config: DecoderConfig) -> RecipeOf:
    return layered_head(config.layers, ExpertKeys())


DEEPSEEK_V32: Final = Family("DeepseekV32ForCausalLM", "deepseek_v32", _read, DecoderLayer, _stored)
GLM_MOE_DSA: Final = Family("GlmMoeDsaForCausalLM", "glm_moe_dsa", _read_glm, DecoderLayer, _stored)
