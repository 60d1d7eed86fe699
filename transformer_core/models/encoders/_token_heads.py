"""Families of encoders of texts with a head on every token: classes of tokens, and spans of answers."""

from collections.abc import Callable
from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RecipeOf
from transformer_core.family._model import ModelFamily
from transformer_core.models.encoders._stack import labels_of
from transformer_core.models.encoders._text import TextConfig
from transformer_core.models.encoders._text_heads import TextForQuestionAnswering, TextForTokenClassification

Read = Callable[..., TextConfig]
"""Reads a configuration from fields, the architecture, and attributes of ``TextConfig``."""

_ENDS: Final = 2  # logits of a token: that an answer begins with it, and that it ends with it


def token_families(
    name: str,
    model_type: str,
    read: Read,
    stored: RecipeOf,
    layer_key: str,
    ignorable: tuple[str, ...] = (),
    *,
    answers: RecipeOf | None = None,
    head: Callable[[ConfigFields], Any] = lambda fields: None,
) -> tuple[ModelFamily[TextConfig], ModelFamily[TextConfig]]:
    """Returns the families ``...ForTokenClassification`` and ``...ForQuestionAnswering`` of an encoder.

    Args:
        name: beginning of the architectures, such as ``Bert``.
        model_type: as of ``ModelFamily``.
        read: reads the configuration of the encoder.
        stored: recipes of the parameters.
        layer_key: as of ``ModelFamily``.
        ignorable: as of ``ModelFamily``.
        answers: recipes of the parameters of the model that finds answers, if they differ.
        head: reads the ``HeadConfig`` of a transform before the last matrix; None if there is none.
    """
    classes, spans = f"{name}ForTokenClassification", f"{name}ForQuestionAnswering"

    def read_classes(fields: ConfigFields) -> TextConfig:
        return read(fields, classes, token_labels=labels_of(fields), head=head(fields))

    def read_spans(fields: ConfigFields) -> TextConfig:
        if labels_of(fields) != _ENDS:
            fields.refuse("num_labels", f"{_ENDS}: logits of the beginning and of the end of an answer")
        return read(fields, spans, answers=True, head=head(fields))

    for reader in (read_classes, read_spans):
        reader.__module__ = read.__module__  # pages list families by the module of their reader
    unused = (*ignorable, "*pooler.dense.*")
    return (
        ModelFamily(
            classes, model_type, read_classes, TextForTokenClassification, lambda config: stored, layer_key, unused
        ),
        ModelFamily(
            spans,
            model_type,
            read_spans,
            TextForQuestionAnswering,
            lambda config: answers or stored,
            layer_key,
            unused,
        ),
    )
