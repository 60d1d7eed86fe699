"""DeepSeek-V2 and V2-Lite (arXiv:2405.04434): latent attention, and experts that may come from the best groups."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import ExpertKeys
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._layer_configs import ExpertsConfig
from transformer_core.layers._routing import Routing
from transformer_core.models.families._deepseek import latent_kind


def _read(fields: ConfigFields) -> DecoderConfig:
    biased = fields.boolean("mlp_bias", False)
    return latent_kind(
        fields,
        DEEPSEEK_V2.architecture,
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        mlp_bias=biased,
        experts=_experts(fields, biased),
    )


def _experts(fields: ConfigFields, biased: bool) -> ExpertsConfig:
    fields.choice("scoring_func", ("softmax",), "softmax")
    if fields.boolean("norm_topk_prob", False):
        fields.refuse("norm_topk_prob", "false: transformers does not normalise the weights of this family's experts")
    grouped = fields.choice("topk_method", ("greedy", "group_limited_greedy"), "greedy") != "greedy"
    layers, dense = fields.integer("num_hidden_layers"), fields.integer("first_k_dense_replace", 0, minimum=0)
    inner = fields.integer("moe_intermediate_size")
    return ExpertsConfig(
        routing=Routing(
            experts=fields.integer("n_routed_experts"),
            chosen=fields.integer("num_experts_per_tok"),
            normalized=False,
            scale=fields.number("routed_scaling_factor", 1.0),
            groups=fields.integer("n_group") if grouped else 1,
            chosen_groups=fields.integer("topk_group") if grouped else 1,
            group_best=1,
        ),
        inner=inner,
        layers=tuple(index >= dense for index in range(layers)),
        shared=inner * fields.integer("n_shared_experts", 2, minimum=0),
        shared_biased=biased,
    )


DEEPSEEK_V2: Final = Family("DeepseekV2ForCausalLM", "deepseek_v2", _read, DecoderLayer, lambda config: ExpertKeys())
