"""Families of checkpoints that have more than a decoder: of these the decoder alone is read."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from lang_core import checked_choices
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import WrappedKeys
from transformer_core.family._config import DecoderConfig, Family

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_OTHER_MODELS: Final = (
    "vision_tower",
    "vision_model",
    "visual",
    "audio_tower",
    "multi_modal_projector",
    "embed_vision",
    "embed_audio",
)
_HEAD: Final = "language_model.lm_head.weight"
_SHARED_FIELDS: Final = ("tie_word_embeddings", "bos_token_id", "eos_token_id")


@checked_choices
def text_of(
    family: Family,
    architecture: str,
    model_type: str,
    defaults: Mapping[str, Any] = _NOTHING,
    *,
    tied: bool | None = None,
) -> Family:
    """Returns the family of checkpoints with a decoder and further models, such as a vision tower: the decoder alone.

    ``text_config`` of their config.json has the decoder's fields; tensors of the other models are ignored.

    Args:
        family: family of the decoder.
        architecture: architecture of the whole.
        model_type: model type of the whole.
        defaults: values of the fields that ``text_config`` leaves out, as such files do.
        tied: whether the head is the embedding if the whole model's ``tie_word_embeddings`` is absent, as the default
            of transformers' class says; None if ``text_config`` says so then.
    """

    def read(fields: ConfigFields) -> DecoderConfig:
        text = fields.object("text_config")
        shared = {name: fields.values[name] for name in _SHARED_FIELDS if fields.has(name)}
        if tied is not None:
            shared.setdefault("tie_word_embeddings", tied)
        values = {**defaults, **text.values, **shared}
        return replace(family.read(ConfigFields(values, text.where)), architecture=architecture)

    inner = family.stored
    return replace(
        family,
        architecture=architecture,
        model_type=model_type,
        read=read,
        stored=lambda config: WrappedKeys(None if inner is None else inner(config)),
        layer_key="*language_model.*layers.{}",
        ignorable=(*(f"{above}{name}.*" for name in _OTHER_MODELS for above in ("", "model.")), _HEAD),
    )
