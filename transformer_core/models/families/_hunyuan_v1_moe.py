"""Hunyuan with mixtures of experts (A13B): a dense Hunyuan with routed experts beside a shared one."""

from typing import Final

from lang_core import WeightSource
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import ExpertKeys, Recipe, RenamedKeys, Stored, first_of
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._layer_configs import ExpertsConfig
from transformer_core.layers._routing import Routing
from transformer_core.models.families._hunyuan_v1_dense import STORED_NORMS, hunyuan_kind

_SHARED: Final = ".mlp.shared_experts."


def _read(fields: ConfigFields) -> DecoderConfig:
    layers, inner = fields.integer("num_hidden_layers"), fields.integer("intermediate_size")
    routing = Routing(experts=_same(fields, "num_experts", layers), chosen=_same(fields, "moe_topk", layers))
    experts = ExpertsConfig(routing=routing, inner=inner, layers=(True,) * layers, shared=inner)
    return hunyuan_kind(fields, HUNYUAN_V1_MOE.architecture, experts=experts)


def _same(fields: ConfigFields, name: str, layers: int) -> int:
    """Reads a number, or a list of it for each layer."""
    given = fields.values.get(name)
    if not isinstance(given, list):
        return fields.integer(name, 1)
    if len(given) < layers or any(number != given[0] for number in given):
        fields.refuse(name, f"a number, or the same number {layers} times")
    return ConfigFields({name: given[0]}, fields.where).integer(name)


def _stored_shared(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
    del source
    return Stored(name.replace(_SHARED, ".mlp.shared_mlp."), shape) if _SHARED in name else None


_STORED: Final = first_of(_stored_shared, RenamedKeys({**STORED_NORMS, "gate": "gate.wg"}), ExpertKeys())

HUNYUAN_V1_MOE: Final = Family("HunYuanMoEV1ForCausalLM", "hunyuan_v1_moe", _read, DecoderLayer, lambda config: _STORED)
