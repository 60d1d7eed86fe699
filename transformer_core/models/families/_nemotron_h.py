"""Nemotron-H and Nemotron 3 (arXiv:2504.03624): layers of one mixer each: Mamba-2, attention, feed-forward, experts."""

import re
from typing import Final

from lang_core import WeightSource
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import Recipe, Stacked, Stored
from transformer_core.family import _pattern_layers as layers
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import activation_of, heads_of, llama_kind
from transformer_core.family._mamba_fields import no_rope
from transformer_core.models.families._mamba2 import backbone_key

_LETTERS: Final = {"M": layers.STATE, "*": layers.ATTENTION, "-": layers.DENSE, "E": layers.EXPERTS}
_BEFORE_5: Final = {"mamba": layers.STATE, "attention": layers.ATTENTION}
_FIRST_NAMES: Final = {
    "mamba_n_groups": "n_groups", "mamba_d_conv": "conv_kernel", "mamba_dt_limit": "time_step_limit",
    "mamba_dt_min": "time_step_min", "mamba_conv_bias": "use_conv_bias", "layer_types": "layers_block_type",
}  # fmt: skip
_EXPERT: Final = re.compile(r"(.*\.experts)\.(up|down)_proj")


def _read(fields: ConfigFields) -> DecoderConfig:
    renamed = {new: fields.values[old] for old, new in _FIRST_NAMES.items() if old in fields.values}
    kinds = _kinds(ConfigFields({**fields.values, **renamed}, fields.where))
    defaults = {"num_hidden_layers": len(kinds), "head_dim": 128, "num_key_value_heads": 8, "intermediate_size": 21504}
    fields = ConfigFields({**defaults, **fields.values, **renamed}, fields.where)
    if fields.boolean("tie_word_embeddings", False):
        fields.refuse("tie_word_embeddings", "false: this family has a head of its own")
    heads, kv_heads, head_size = heads_of(fields)
    return llama_kind(
        fields,
        NEMOTRON_H.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        norm_eps=fields.number("layer_norm_epsilon", 1e-5),
        activation=activation_of(fields, "mlp_hidden_act", "relu2"),
        mlp_bias=fields.boolean("mlp_bias", False),
        mixer=layers.pattern_config(fields, kinds),
        **no_rope(len(kinds)),
    )


def _kinds(fields: ConfigFields) -> tuple[str, ...]:
    """Reads the kind of each layer: listed, or as letters of a pattern."""
    listed, name = fields.values.get("layers_block_type"), "layers_block_type"
    if listed is None and fields.has("hybrid_override_pattern"):
        name, listed = "hybrid_override_pattern", fields.values["hybrid_override_pattern"]
        listed = [_LETTERS.get(letter, letter) for letter in listed] if isinstance(listed, str) else listed
    listed = [layers.STATE, layers.EXPERTS, layers.ATTENTION, layers.DENSE] if listed is None else listed
    kinds = [_BEFORE_5.get(str(kind), kind) for kind in listed] if isinstance(listed, list) else []
    count = fields.integer("num_hidden_layers", len(kinds) or 1)
    if len(kinds) != count or any(kind not in layers.KINDS for kind in kinds):
        fields.refuse(
            name, f"{count} (num_hidden_layers) of {', '.join(layers.KINDS)}, or the letters {' '.join(_LETTERS)}"
        )
    return tuple(kinds)


def _stored(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe:
    """Returns the recipe of a parameter; each expert's projections are stored by themselves."""
    key = backbone_key(name, source)
    match = _EXPERT.fullmatch(key)
    if match is None:
        return Stored(key, shape)
    return Stacked([f"{match[1]}.{expert}.{match[2]}_proj.weight" for expert in range(shape[0])], shape[1:])


NEMOTRON_H: Final = Family(
    "NemotronHForCausalLM", "nemotron_h", _read, layers.pattern_layer, lambda config: _stored, "*.layers.{}", ("mtp.*",)
)
