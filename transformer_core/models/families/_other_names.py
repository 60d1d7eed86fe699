"""Architectures that files name as their authors' code did, of models that transformers has under other names."""

from dataclasses import replace
from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedKeys
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.models.families._ernie4_5 import ERNIE4_5
from transformer_core.models.families._falcon import FALCON
from transformer_core.models.families._llama import LLAMA
from transformer_core.models.families._mpt import MPT
from transformer_core.models.families._phimoe import PHIMOE
from transformer_core.models.families._qwen2 import QWEN2
from transformer_core.models.families._stablelm import STABLELM

_YI: Final = RenamedKeys({"input_layernorm": "ln1", "post_attention_layernorm": "ln2"})
_EPOCH: Final = {"layer_norm_eps": "norm_eps", "partial_rotary_factor": "rope_pct"}
_NOT_RUN: Final = ("model.mtp_layers.*",)


def _also(architecture: str, family: Family, names: dict[str, str] | None = None, **changes: Any) -> Family:
    """Returns a family under another name; ``names`` are the names of fields in its files, by those of the family."""

    def read(fields: ConfigFields) -> DecoderConfig:
        return replace(family.read(fields.renamed(names or {})), architecture=architecture)

    return replace(family, architecture=architecture, read=read, **changes)


def _read_rw(fields: ConfigFields) -> DecoderConfig:
    """Reads a Falcon; 40B and 180B are known by their model type alone."""
    known = {"new_decoder_architecture": True} if fields.values.get("model_type") == "RefinedWeb" else {}
    return replace(FALCON.read(ConfigFields({**known, **fields.values}, fields.where)), architecture=RW.architecture)


RW: Final = replace(FALCON, architecture="RWForCausalLM", model_type="RefinedWebModel", read=_read_rw)
OTHER_NAMES: Final = (
    _also("LLaMAForCausalLM", LLAMA),
    _also("SkyworkForCausalLM", LLAMA, model_type="skywork"),
    _also("NanbeigeForCausalLM", LLAMA, model_type="nanbeige"),
    _also("YiForCausalLM", LLAMA, model_type="Yi", stored=lambda config: _YI),
    _also("MiMoForCausalLM", QWEN2, model_type="mimo", ignorable=(*QWEN2.ignorable, *_NOT_RUN)),
    _also("PhiMoEForCausalLM", PHIMOE),
    _also("Ernie4_5_ForCausalLM", ERNIE4_5),
    RW,
    _also("MPTForCausalLM", MPT),
    _also("StableLMEpochForCausalLM", STABLELM, _EPOCH, model_type="stablelm_epoch"),
)
