"""Recipes of tensors that llama.cpp stores in another form."""

import numpy as np

from lang_core import WeightSource
from transformer_core.checkpoints import Recipe, Reshaped


class LogOfNegative(Reshaped):
    """Logarithm of the negative of the stored value: ``A_log``, of which llama.cpp stores ``A = -exp(A_log)``."""

    def rows(self, source: WeightSource, start: int, stop: int) -> np.ndarray:
        """Returns a copy of these rows, [stop - start, ..], in the stored dtype."""
        stored = super().rows(source, start, stop)
        return np.log(-stored.astype(np.float64)).astype(stored.dtype)

    def placed(self) -> Recipe:
        """Returns the recipe of the stored values."""
        return Reshaped(self._key, self._stored_shape, self._shape)

    def stored_values(self, values: np.ndarray) -> np.ndarray:
        """Returns the negative exponentials of a parameter's values [..], f32 [..]."""
        return -np.exp(values.astype(np.float32))
