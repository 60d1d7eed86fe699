"""A model's predictions of the next token."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np


class Prediction(Protocol):
    """Prediction for one sequence. Values may still be on a device; they are read on demand."""

    def logits(self) -> np.ndarray:
        """Returns the logits f32 [V]."""
        ...

    def likeliest(self) -> int:
        """Returns the index of the largest logit, the lowest of equal ones; -1 if it is NaN or infinite."""
        ...


@dataclass(frozen=True, slots=True)
class KnownLogits:
    """Prediction with logits on the host.

    Attributes:
        array: logits f32 [V].

    >>> KnownLogits(np.array([0.5, 2.0, 2.0], np.float32)).likeliest()
    1
    """

    array: np.ndarray

    def logits(self) -> np.ndarray:
        """Returns the logits f32 [V]."""
        return self.array

    def likeliest(self) -> int:
        """Returns the index of the largest logit; see ``Prediction.likeliest``."""
        return int(likeliest_ids(self.array))


def likeliest_ids(logits: np.ndarray) -> np.ndarray:
    """Returns the likeliest tokens i32 [..] of logits [.., V], as the module's ``next_ids`` does.

    >>> likeliest_ids(np.array([[0, 7, 7], [1, np.nan, 3]], np.float32)).tolist()
    [1, -1]
    """
    finite = np.isfinite(logits.max(-1))
    return np.where(finite, logits.argmax(-1), -1).astype(np.int32)


def rows_of(logits: np.ndarray) -> Sequence[Prediction]:
    """Returns the predictions of B sequences from their logits f32 [B, V]."""
    return [KnownLogits(row) for row in logits]
