"""DeBERTa (He et al. 2021, arXiv:2006.03654), the first version: fused projections, and keys without biases."""

from typing import Any, Final

from lang_core import WeightSource
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import GroupedParts, Recipe, RecipeOf, RenamedModules, first_of
from transformer_core.models.encoders._bert import BERT_NAMES
from transformer_core.models.encoders._bert_kin import PREDICTIONS, bert_head
from transformer_core.models.encoders._deberta_v2 import DebertaForSequenceClassification, read_deberta
from transformer_core.models.encoders._text import HeadConfig, TextConfig
from transformer_core.models.encoders._text_families import text_families

_LAYER: Final = "encoder.layers.{}.self_attn."
_SELF: Final = "encoder.layer.{}.attention.self."
_KEYS: Final = RenamedModules(
    {
        **BERT_NAMES,
        **PREDICTIONS,
        f"{_LAYER}in_proj": f"{_SELF}in_proj",
        f"{_LAYER}q_proj.bias": f"{_SELF}q_bias",
        f"{_LAYER}v_proj.bias": f"{_SELF}v_bias",
        f"{_LAYER}pos_k_proj": f"{_SELF}pos_proj",
        f"{_LAYER}pos_q_proj": f"{_SELF}pos_q_proj",
    },
    above=("deberta.",),
)
_PARTS: Final = {"q_proj": (0, 1), "k_proj": (1, 1), "v_proj": (2, 1)}
_UNUSED: Final = ("*embeddings.position_ids", "mask_predictions.*", "lm_predictions.*", "*position_embeddings.*")


def _read(fields: ConfigFields, architecture: str, **known: Any) -> TextConfig:
    if fields.boolean("talking_head", False):
        fields.refuse("talking_head", "false, or no such field")
    return read_deberta(fields, architecture, first=True, **known)


def _head(fields: ConfigFields) -> HeadConfig:
    if not fields.boolean("legacy", True):
        fields.refuse("legacy", "true, or no such field")
    return bert_head(fields)


def _stored(config: TextConfig) -> RecipeOf:
    grouped = GroupedParts(_KEYS, "in_proj", config.stack.heads, _PARTS)

    def fused(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        return grouped(name, shape, source) if name.endswith(".weight") else None

    return first_of(fused, _KEYS)


DEBERTA: Final = text_families(
    "Deberta",
    "deberta",
    _read,
    _stored,
    _head,
    _UNUSED,
    classifier=DebertaForSequenceClassification,
    pools=False,
)
