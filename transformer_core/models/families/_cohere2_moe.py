"""Command A with experts: a Command R7B whose feed-forward is a mixture in most layers."""

from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import ExpertKeys
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import kinds_of_layers, layer_types, windows_by_type
from transformer_core.family._layer_configs import ExpertsConfig, NormKind
from transformer_core.family._layer_types import FULL, SLIDING
from transformer_core.layers._rope_config import RopeKind
from transformer_core.layers._routing import Routing, Scoring
from transformer_core.models.families._cohere import cohere_kind, one_norm_layer


def _read(fields: ConfigFields) -> DecoderConfig:
    inner = fields.integer("intermediate_size")
    dense_inner = fields.integer("prefix_dense_intermediate_size", inner)
    values = {"head_dim": 128, **fields.values, "intermediate_size": dense_inner}
    fields = ConfigFields(values, fields.where).renamed({"num_experts": "num_local_experts"})
    layers, first = fields.integer("num_hidden_layers"), fields.integer("first_k_dense_replace", 0, minimum=0)
    patterns = "prefix_dense_sliding_window_pattern", "sliding_window_pattern"
    before, after = (fields.integer(name, default) for name, default in zip(patterns, (1, 4), strict=True))
    turns = [SLIDING if (index + 1) % before else FULL for index in range(min(first, layers))] + [
        SLIDING if (index + 1) % after else FULL for index in range(layers - first)
    ]
    kinds = layer_types(fields, turns)
    default = ["dense" if index < first else "sparse" for index in range(layers)]
    sparse = kinds_of_layers(fields, ("dense", "sparse"), default, "mlp_layer_types")
    own: dict[str, Any] = {}
    if fields.has("rms_norm_eps"):
        own = {"norm": NormKind.RMS, "norm_eps": fields.number("rms_norm_eps")}
    return cohere_kind(
        fields,
        COHERE2_MOE.architecture,
        windows=windows_by_type(fields, kinds),
        rope_kinds=tuple(
            RopeKind.MODEL if kind == SLIDING or (feed == "dense" and before == 1) else RopeKind.NONE
            for kind, feed in zip(kinds, sparse, strict=True)
        ),
        experts=_experts(fields, inner, tuple(kind == "sparse" for kind in sparse)),
        **own,
    )


def _experts(fields: ConfigFields, inner: int, layers: tuple[bool, ...]) -> ExpertsConfig:
    shared = fields.integer("num_shared_experts", 0, minimum=0)
    strategy = fields.choice("shared_expert_combination_strategy", ("average", "sum"), "average")
    softmax = fields.choice("expert_selection_fn", ("softmax", "sigmoid"), "softmax") == "softmax"
    return ExpertsConfig(
        routing=Routing(
            experts=fields.integer("num_experts", 8),
            chosen=fields.integer("num_experts_per_tok", 2),
            scoring=Scoring.SOFTMAX if softmax else Scoring.SIGMOID,
            normalized=softmax or fields.boolean("norm_topk_prob", True),
        ),
        inner=inner,
        layers=layers,
        shared=inner * shared,
        sum_scale=0.5 if shared and strategy == "average" else 1.0,
    )


COHERE2_MOE: Final = Family("Cohere2MoeForCausalLM", "cohere2_moe", _read, one_norm_layer, lambda config: ExpertKeys())
