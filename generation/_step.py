"""A new token, and the prediction it was chosen from."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from generation._prediction import Prediction
from lang_core import checked_choices


@checked_choices
@dataclass(frozen=True, slots=True)
class TokenStep:
    """A new token.

    Attributes:
        token_id: the token.
        prediction: from which it was chosen.
        ended: why generation ends with it: ``eos`` is an end token, ``complete`` the last one that a constraint allows;
            None if it goes on.
    """

    token_id: int
    prediction: Prediction
    ended: Literal["eos", "length", "complete"] | None

    @property
    def logits(self) -> np.ndarray:
        """The logits f32 [V] from which it was chosen; read from the device now, if that was not done before.

        Errors are the model's: of a session that is closed nothing can be read.
        """
        return self.prediction.logits()
