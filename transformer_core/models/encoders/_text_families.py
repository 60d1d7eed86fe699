"""Families of an encoder of texts, with and without a head, that differ in their names and heads only."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from lang_core import WeightSource
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import Recipe, RecipeOf
from transformer_core.checkpoints import Stored as StoredTensor
from transformer_core.family._model import ModelFamily
from transformer_core.models.encoders._bert import ANY_LAYER
from transformer_core.models.encoders._stack import labels_of
from transformer_core.models.encoders._text import HeadConfig, TextConfig, TextModel, with_pooling
from transformer_core.models.encoders._text_heads import TextForMaskedLM, TextForSequenceClassification
from transformer_core.models.encoders._token_heads import Read, token_families

Stored = Callable[[TextConfig], RecipeOf]
"""Gives the recipes of a configuration's parameters."""


_NEXT: Final = "cls.seq_relationship"
_FOLLOWS: Final = 2  # classes: the second text follows, or is any other


def next_sentence_family(
    name: str,
    model_type: str,
    read: Read,
    stored: Stored,
    unused: tuple[str, ...],
    *,
    layer_key: str = ANY_LAYER,
    **known: Any,
) -> ModelFamily[TextConfig]:
    """Returns the family ``...ForNextSentencePrediction``: a classifier of pairs of texts, class 0 if they follow.

    Arguments are those of ``text_families``; ``stored`` are the recipes of the encoder and its pooler.
    """
    architecture = f"{name}ForNextSentencePrediction"

    def read_pairs(fields: ConfigFields) -> TextConfig:
        return read(fields, architecture, pooler=True, labels=_FOLLOWS, **known)

    def recipes(config: TextConfig) -> RecipeOf:
        others = stored(config)

        def recipe(key: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
            head, _, kind = key.rpartition(".")
            return StoredTensor(f"{_NEXT}.{kind}", shape) if head == "classifier" else others(key, shape, source)

        return recipe

    read_pairs.__module__ = read.__module__
    return ModelFamily(architecture, model_type, read_pairs, TextForSequenceClassification, recipes, layer_key, unused)


def text_families(
    name: str,
    model_type: str,
    read: Read,
    stored: Stored,
    head: Callable[[ConfigFields], HeadConfig],
    unused: tuple[str, ...],
    *,
    masked: str = "cls.predictions.*",
    classifier_stored: Stored | None = None,
    classifier: Callable[..., TextModel] = TextForSequenceClassification,
    masked_lm: Callable[..., TextModel] = TextForMaskedLM,
    pools: bool = True,
    layer_key: str = ANY_LAYER,
    **known: Any,
) -> tuple[ModelFamily[TextConfig], ...]:
    """Returns the families ``...Model``, ``...ForMaskedLM`` and those of three classifiers.

    Args:
        name: beginning of the architectures, such as ``Ernie``.
        model_type: as of ``ModelFamily``.
        read: reads the configuration of the encoder.
        stored: recipes of the parameters.
        head: reads the head of the masked language model.
        unused: patterns of keys that no model reads.
        masked: pattern of the keys of the masked language model's head.
        classifier_stored: recipes of the parameters of the classifier of texts, if they differ.
        classifier: makes the classifier of texts.
        masked_lm: makes the masked language model.
        pools: whether the model without a head gives ``pooler_output``.
        layer_key: as of ``ModelFamily``.
        **known: attributes of ``TextConfig`` of all models.
    """
    model, lm, classes = (f"{name}{kind}" for kind in ("Model", "ForMaskedLM", "ForSequenceClassification"))

    def read_model(fields: ConfigFields) -> TextConfig:
        return read(fields, model, pooler=pools, **known)

    def read_masked(fields: ConfigFields) -> TextConfig:
        return read(fields, lm, head=head(fields), **known)

    def read_classifier(fields: ConfigFields) -> TextConfig:
        return read(fields, classes, pooler=True, labels=labels_of(fields), **known)

    for reader in (read_model, read_masked, read_classifier):
        reader.__module__ = read.__module__  # pages list families by the module of their reader
    above = (*unused, "*pooler.*")
    tokens = token_families(name, model_type, read, lambda *key: None, layer_key, (*above, masked))
    return (
        ModelFamily(model, model_type, read_model, TextModel, stored, layer_key, (*above, masked), with_pooling),
        ModelFamily(lm, model_type, read_masked, masked_lm, stored, layer_key, above),
        ModelFamily(
            classes,
            model_type,
            read_classifier,
            classifier,
            classifier_stored or stored,
            layer_key,
            (*(unused if classifier_stored is None else above), masked),
        ),
        *(replace(family, stored=stored) for family in tokens),
    )
