"""OLMo-3 (arXiv:2512.13961): an OLMo-2 with windows in three of four layers; their RoPE is not scaled."""

from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, layer_types, whole_rope, windows_by_type
from transformer_core.family._other_layers import PostNormLayer
from transformer_core.layers._rope_config import RopeConfig, RopeKind
from transformer_core.models.families._olmo2 import olmo_kind

_BASE: Final = 5e5  # transformers' default
_FULL: Final = "full_attention"
_SLIDING: Final = "sliding_attention"


def _read(fields: ConfigFields) -> DecoderConfig:
    layers = fields.integer("num_hidden_layers")
    turns = [_SLIDING if (index + 1) % 4 else _FULL for index in range(layers)]
    kinds = layer_types(fields, turns)
    return olmo_kind(
        fields,
        OLMO3.architecture,
        rope=_rope(fields, _FULL),
        local_rope=_rope(fields, _SLIDING),
        rope_kinds=tuple(RopeKind.LOCAL if kind == _SLIDING else RopeKind.MODEL for kind in kinds),
        windows=windows_by_type(fields, turns),
    )


def _rope(fields: ConfigFields, kind: str) -> RopeConfig:
    """Reads the RoPE of one kind of layers, from transformers 4's and 5's forms."""
    values: dict[str, Any] = dict(fields.values)
    given: dict[str, Any] = {}
    if fields.has("rope_parameters"):
        of_kind = fields.object("rope_parameters").object(kind)
        if not of_kind.boolean("truncate", True):
            of_kind.refuse("truncate", "true, or no such field: transformers does not read it of a kind of layers")
        values["rope_parameters"] = given = dict(of_kind.values)
    elif kind == _SLIDING:
        values["rope_scaling"] = None
    if kind == _SLIDING and "rope_theta" not in given and fields.number("rope_theta", _BASE) != _BASE:
        expected = f"{_BASE:g}, or rope_parameters with a rope_theta for each kind of layers: versions of transformers "
        fields.refuse("rope_theta", expected + "disagree about that of layers with windows")
    head_size = heads_of(fields, kv_heads_default=True)[2]
    return whole_rope(ConfigFields(values, fields.where), OLMO3.architecture, head_size, default_base=_BASE)


OLMO3: Final = Family("Olmo3ForCausalLM", "olmo3", _read, PostNormLayer)
