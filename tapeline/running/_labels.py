"""Names of classes in a bundle's config.json, and the function that makes scores of logits."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from lang_core import ConfigError
from tapeline.bundle import Bundle
from transformer_core import CONFIG_FILE, ConfigFields, config_fields

_KINDS: Final = ("regression", "single_label_classification", "multi_label_classification")
_AGAIN: Final = "fetch the model's config.json again, and export"


@dataclass(frozen=True, slots=True)
class Labels:
    """Classes of a classifier.

    Attributes:
        names: name of each class, in the order of the logits.
        kind: ``problem_type`` of config.json; None if the file has none.
    """

    names: tuple[str, ...]
    kind: str | None = None

    @classmethod
    def read(cls, bundle: Bundle, count: int) -> "Labels":
        """Reads the classes of a bundle.

        Args:
            bundle: the bundle.
            count: number of classes that its results have.

        Raises:
            ConfigError: the names are damaged, or there are more or fewer.
        """
        fields = config_fields(str(bundle.path / CONFIG_FILE), _AGAIN)
        kind = fields.choice("problem_type", _KINDS) if fields.has("problem_type") else None
        return cls(_names(fields, count), kind)

    @property
    def scores(self) -> Callable[[np.ndarray], np.ndarray]:
        """Function of logits [.., labels], as in transformers' pipelines."""
        if self.kind == _KINDS[0]:
            return np.asarray
        return logistic if self.kind == _KINDS[2] or len(self.names) == 1 else softmax

    @property
    def entailment(self) -> int | None:
        """Index of the class of entailment of a model of natural-language inference; None if there is none."""
        return next((index for index, name in enumerate(self.names) if name.lower().startswith("entail")), None)


def _names(fields: ConfigFields, count: int) -> tuple[str, ...]:
    if not fields.has("id2label"):
        return tuple(f"LABEL_{index}" for index in range(count))
    names = fields.object("id2label").values
    if set(names) != {str(index) for index in range(count)}:
        raise ConfigError(
            f"{fields.where}: field 'id2label': expected names of 0 to {count - 1}; found those of "
            f"{', '.join(map(str, names))}: {_AGAIN}"
        )
    return tuple(str(names[str(index)]) for index in range(count))


def logistic(logits: np.ndarray) -> np.ndarray:
    """Computes 1 / (1 + exp(-x)) without overflow."""
    small = np.exp(-np.abs(logits))
    return np.where(logits >= 0, 1 / (1 + small), small / (1 + small)).astype(np.float32)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Computes the softmax over the last axis.

    >>> softmax(np.array([0.0, 0.0])).tolist()
    [0.5, 0.5]
    """
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)
