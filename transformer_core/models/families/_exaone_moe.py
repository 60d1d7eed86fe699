"""K-EXAONE: an EXAONE 4 with norms before attention and feed-forward, and DeepSeek-V3's experts."""

from dataclasses import replace
from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import ExpertKeys
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import kinds_of_layers, layer_types, llama_kind, windows_by_type
from transformer_core.family._layer import DecoderLayer
from transformer_core.layers._rope_config import RopeKind
from transformer_core.models.families._deepseek import grouped_experts
from transformer_core.models.families._exaone4 import layers_by_turns

_SLIDING: Final = "sliding_attention"
_EXPERTS: Final = {"n_routed_experts": "num_experts", "n_shared_experts": "num_shared_experts"}


def _read(fields: ConfigFields) -> DecoderConfig:
    fields = fields.renamed(_EXPERTS)
    layers = fields.integer("num_hidden_layers")
    windowed = fields.has("sliding_window") or "sliding_window" not in fields.values
    kinds = layer_types(fields, layers_by_turns(fields) if windowed else ["full_attention"] * layers)
    experts = grouped_experts(fields, dense=1, scale=2.5, groups=1, chosen_groups=1)
    default = ["sparse" if sparse else "dense" for sparse in experts.layers]
    sparse = kinds_of_layers(fields, ("dense", "sparse"), default, "mlp_layer_types")
    return llama_kind(
        fields,
        EXAONE_MOE.architecture,
        norm_eps=fields.number("rms_norm_eps", 1e-5),
        qk_norm=True,
        rope_kinds=tuple(RopeKind.MODEL if kind == _SLIDING or not windowed else RopeKind.NONE for kind in kinds),
        windows=windows_by_type(fields, kinds),
        experts=replace(experts, layers=tuple(kind == "sparse" for kind in sparse)),
    )


EXAONE_MOE: Final = Family(
    "ExaoneMoeForCausalLM",
    "exaone_moe",
    _read,
    DecoderLayer,
    lambda config: ExpertKeys(correction="e_score_correction_bias"),
    ignorable=("mtp.*",),
)
