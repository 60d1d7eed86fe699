"""What a model says of the token that comes next."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np


class Prediction(Protocol):
    """Of one sequence. A model may have both on a device still: what is not asked for is not read."""

    def logits(self) -> np.ndarray:
        """The logits f32 [V]."""
        ...

    def likeliest(self) -> int:
        """The index of the largest logit, the lowest of equal ones; -1 where the largest is NaN or infinite."""
        ...


@dataclass(frozen=True, slots=True)
class KnownLogits:
    """A prediction whose logits are on the host.

    Attributes:
        array: f32 [V].

    >>> KnownLogits(np.array([0.5, 2.0, 2.0], np.float32)).likeliest()
    1
    """

    array: np.ndarray

    def logits(self) -> np.ndarray:
        """The logits f32 [V]."""
        return self.array

    def likeliest(self) -> int:
        """As of ``Prediction``."""
        return int(likeliest_ids(self.array))


def likeliest_ids(logits: np.ndarray) -> np.ndarray:
    """As the module's ``next_ids``, by NumPy: i32 [..] of logits [.., V].

    >>> likeliest_ids(np.array([[0, 7, 7], [1, np.nan, 3]], np.float32)).tolist()
    [1, -1]
    """
    found = np.isfinite(logits.max(-1))
    return np.where(found, logits.argmax(-1), -1).astype(np.int32)


def rows_of(logits: np.ndarray) -> Sequence[Prediction]:
    """The predictions of B sequences, of their logits f32 [B, V]."""
    return [KnownLogits(row) for row in logits]
