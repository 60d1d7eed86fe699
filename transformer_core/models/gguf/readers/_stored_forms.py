"""Recipes of tensors that llama.cpp stores in another form."""

from typing import Final

import numpy as np

from lang_core import WeightSource

Shape = tuple[int, ...]


class Reshaped:
    """Tensor that is stored in another shape; its elements are in the same order.

    Args:
        key: key of the stored tensor.
        stored_shape: its shape.
        shape: shape of the tensor that is made.
    """

    keeps_rows: bool = False

    def __init__(self, key: str, stored_shape: Shape, shape: Shape) -> None:
        self._key: Final = key
        self._stored_shape: Final = stored_shape
        self._shape: Final = shape

    def stored(self) -> dict[str, Shape]:
        """Returns the key and its shape."""
        return {self._key: self._stored_shape}

    def rows(self, source: WeightSource, start: int, stop: int) -> np.ndarray:
        """Returns these rows; the whole is read, which is small."""
        return source.read_rows(self._key, 0, self._stored_shape[0]).reshape(self._shape)[start:stop]


class LogOfNegative(Reshaped):
    """Logarithm of the negative of what is stored: ``A_log``, of which llama.cpp stores ``A = -exp(A_log)``."""

    def rows(self, source: WeightSource, start: int, stop: int) -> np.ndarray:
        """Returns a copy of these rows, in the stored dtype."""
        stored = super().rows(source, start, stop)
        return np.log(-stored.astype(np.float64)).astype(stored.dtype)
