"""Granite 3 MoE (arXiv:2408.13359): a Granite with experts in every layer, in some models beside a shared one."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._layer import DecoderLayer
from transformer_core.models.families._granite import granite_kind
from transformer_core.models.families._granitemoehybrid import granite_experts, granite_stored


def _read(fields: ConfigFields) -> DecoderConfig:
    return granite_kind(fields, GRANITE_MOE.architecture, experts=granite_experts(fields, shared=0))


def _read_shared(fields: ConfigFields) -> DecoderConfig:
    shared = fields.integer("shared_intermediate_size", 0, minimum=0)
    return granite_kind(fields, GRANITE_MOE_SHARED.architecture, experts=granite_experts(fields, shared))


GRANITE_MOE: Final = Family("GraniteMoeForCausalLM", "granitemoe", _read, DecoderLayer, lambda config: granite_stored)
GRANITE_MOE_SHARED: Final = Family(
    "GraniteMoeSharedForCausalLM", "granitemoeshared", _read_shared, DecoderLayer, lambda config: granite_stored
)
