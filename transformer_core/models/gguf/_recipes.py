"""Recipes that undo what llama.cpp does to tensors when it converts a model."""

from typing import Final

import numpy as np

from lang_core import WeightSource
from transformer_core.checkpoints import Stored

Shape = tuple[int, ...]


class SplitHalves(Stored):
    """Rows of queries or keys as SPLIT_HALF RoPE pairs them, of a tensor that is stored for INTERLEAVED.

    The converter (``LlamaModel.permute``) views the rows of a head as [2, H/2] and swaps the two axes, so that row
    ``2 i + part`` in the file is row ``part H/2 + i`` of the model.

    Args:
        key: key of the stored tensor.
        shape: shape [heads * H, ..], stored and made.
        heads: N or K.
    """

    def __init__(self, key: str, shape: Shape, heads: int) -> None:
        super().__init__(key, shape)
        self._size: Final = shape[0] // heads

    def rows(self, source: WeightSource, start: int, stop: int) -> np.ndarray:
        """Returns a copy of these rows; the heads that contain them are read."""
        size = self._size
        first, last = start // size, -(-stop // size)
        read = super().rows(source, first * size, last * size)
        pairs = read.reshape(last - first, size // 2, 2, *read.shape[1:])
        begin = start - first * size
        return pairs.swapaxes(1, 2).reshape(read.shape)[begin : begin + stop - start]


class LessOne(Stored):
    """Weight of a norm that adds 1 to it; what is stored is the sum (Gemma).

    The difference is exact for sums of at least 1/2, so that the norm computes the stored sum again.
    """

    keeps_rows = False

    def rows(self, source: WeightSource, start: int, stop: int) -> np.ndarray:
        """Returns a copy, in the stored dtype."""
        stored = super().rows(source, start, stop)
        return (stored.astype(np.float32) - np.float32(1)).astype(stored.dtype)
