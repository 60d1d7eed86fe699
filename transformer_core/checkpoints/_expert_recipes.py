"""Recipes of experts' weights that are stored input-major."""

from typing import Final

import numpy as np

from lang_core import WeightSource
from transformer_core.checkpoints._recipes import Shape


class EveryOther:
    """Experts' weights [E, O, I] of a stored [E, I, step O], or their biases [E, O]: every step-th output.

    Args:
        key: key of the stored tensor.
        shape: shape of the parameter.
        first: first output.
        step: number of interleaved projections.
    """

    keeps_rows: bool = False

    def __init__(self, key: str, shape: Shape, first: int, step: int) -> None:
        self._key: Final = key
        experts, *inputs = shape[0], *shape[2:]
        self._shape: Final = (experts, *inputs, step * shape[1])
        self._first: Final = first
        self._step: Final = step

    def stored(self) -> dict[str, Shape]:
        """Returns the key and the shape of the stored tensor."""
        return {self._key: self._shape}

    def rows(self, source: WeightSource, start: int, stop: int) -> np.ndarray:
        """Returns a view of these experts, [stop - start, ..]."""
        read = source.read_rows(self._key, start, stop)[..., self._first :: self._step]
        return read.swapaxes(1, 2) if read.ndim > 2 else read


class InputMajor:
    """Experts' weights [E, O, I] of a stored [E, I, outputs]: consecutive outputs.

    Args:
        key: key of the stored tensor.
        shape: shape of the parameter.
        start: first output.
        outputs: number of outputs that are stored.
    """

    keeps_rows: bool = False

    def __init__(self, key: str, shape: Shape, start: int, outputs: int) -> None:
        self._key: Final = key
        self._shape: Final = (shape[0], shape[2], outputs)
        self._outputs: Final = slice(start, start + shape[1])

    def stored(self) -> dict[str, Shape]:
        """Returns the key and the shape of the stored tensor."""
        return {self._key: self._shape}

    def rows(self, source: WeightSource, start: int, stop: int) -> np.ndarray:
        """Returns a view of these experts, [stop - start, ..]."""
        return source.read_rows(self._key, start, stop)[..., self._outputs].swapaxes(1, 2)
