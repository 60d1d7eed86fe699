"""Qwen3-MoE: a Qwen3 with mixtures of experts in some layers."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import ExpertKeys
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import llama_kind, one_window
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._layer_configs import ExpertsConfig
from transformer_core.layers._routing import Routing


def _read(fields: ConfigFields) -> DecoderConfig:
    biased = fields.boolean("attention_bias", False)
    layers = fields.integer("num_hidden_layers")
    slides = fields.boolean("use_sliding_window", False)
    return llama_kind(
        fields,
        QWEN3_MOE.architecture,
        qkv_bias=biased,
        output_bias=biased,
        qk_norm=True,
        windows=one_window(fields) if slides else (None,) * layers,
        experts=qwen_experts(fields),
    )


def qwen_experts(fields: ConfigFields, *, normalized: bool = False, shared: str | None = None) -> ExpertsConfig:
    """Reads the experts of Qwen's models.

    Args:
        fields: fields of config.json.
        normalized: default of ``norm_topk_prob``.
        shared: name of the field with F of the shared expert, if there is one.
    """
    layers = fields.integer("num_hidden_layers")
    step = fields.integer("decoder_sparse_step", 1)
    dense = fields.values.get("mlp_only_layers") or []
    if not isinstance(dense, list) or not all(isinstance(index, int) for index in dense):
        fields.refuse("mlp_only_layers", "a list of the numbers of layers")
    count = "num_local_experts" if fields.has("num_local_experts") else "num_experts"
    routing = Routing(
        experts=fields.integer(count),
        chosen=fields.integer("num_experts_per_tok"),
        normalized=fields.boolean("norm_topk_prob", normalized),
    )
    sparse = tuple(index not in dense and (index + 1) % step == 0 for index in range(layers))
    inner = fields.integer("moe_intermediate_size")
    if shared is None:
        return ExpertsConfig(routing=routing, inner=inner, layers=sparse)
    return ExpertsConfig(routing=routing, inner=inner, layers=sparse, shared=fields.integer(shared), shared_gate=True)


QWEN3_MOE: Final = Family("Qwen3MoeForCausalLM", "qwen3_moe", _read, DecoderLayer, lambda config: ExpertKeys())
