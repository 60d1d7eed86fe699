"""Recipes that undo llama.cpp's changes to tensors when it converts a model."""

from typing import Final

import numpy as np

from lang_core import WeightSource
from transformer_core.checkpoints import Recipe, Stored

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
    """Weight of a norm that adds 1 to it; the file stores the sum (Gemma).

    The difference is exact for sums of at least 1/2, so that the norm computes the stored sum again.
    """

    keeps_rows = False

    def rows(self, source: WeightSource, start: int, stop: int) -> np.ndarray:
        """Returns a copy, in the stored dtype."""
        stored = super().rows(source, start, stop)
        return (stored.astype(np.float32) - np.float32(1)).astype(stored.dtype)

    def placed(self) -> Recipe:
        """Returns the recipe of the sums."""
        return Stored(self._key, self._shape)

    def stored_values(self, values: np.ndarray) -> np.ndarray:
        """Returns the sums of a parameter's values [..], f32 [..]."""
        return values.astype(np.float32) + np.float32(1)


class JoinedHeads:
    """``kv_b_proj`` [N (plain + value), rank] of keys [N, rank, plain] and values [N, value, rank], head by head.

    Args:
        keys: key of the stored tensor of keys, with transposed heads.
        values: key of the stored tensor of values.
        shape: shape of the whole.
        heads: N.
        plain: rows of a head's keys.
    """

    keeps_rows: bool = False

    def __init__(self, keys: str, values: str, shape: tuple[int, ...], heads: int, plain: int) -> None:
        self._keys: Final = keys
        self._values: Final = values
        self._shape: Final = shape
        self._rows: Final = shape[0] // heads
        self._heads: Final = heads
        self._plain: Final = plain

    def stored(self) -> dict[str, tuple[int, ...]]:
        """Returns both keys and their shapes."""
        rank = self._shape[1]
        return {
            self._keys: (self._heads, rank, self._plain),
            self._values: (self._heads, self._rows - self._plain, rank),
        }

    def rows(self, source: WeightSource, start: int, stop: int) -> np.ndarray:
        """Returns a copy of these rows; the heads that contain them are read."""
        first, last = start // self._rows, -(-stop // self._rows)
        keys = source.read_rows(self._keys, first, last).swapaxes(1, 2)
        heads = np.concatenate([keys, source.read_rows(self._values, first, last)], axis=1)
        begin = start - first * self._rows
        return heads.reshape(-1, self._shape[1])[begin : begin + stop - start]


class OneOf:
    """One of several matrices that are stored in one tensor.

    Args:
        key: key of the stored tensor, [count, ..].
        shape: shape of the matrix.
        count: number of matrices.
        index: index of the matrix.
    """

    keeps_rows: bool = True

    def __init__(self, key: str, shape: Shape, count: int, index: int) -> None:
        self._key: Final = key
        self._shape: Final = shape
        self._count: Final = count
        self._index: Final = index

    def stored(self) -> dict[str, Shape]:
        """Returns the key and shape of the whole."""
        return {self._key: (self._count, *self._shape)}

    def rows(self, source: WeightSource, start: int, stop: int) -> np.ndarray:
        """Returns a view of these rows."""
        return source.read_rows(self._key, self._index, self._index + 1)[0, start:stop]


class Difference:
    """The first of two stored rows less the second: of two classes, the logit of the first against the second.

    Args:
        key: key of the stored matrix, [2, D].
        shape: [1, D].
    """

    keeps_rows: bool = False

    def __init__(self, key: str, shape: Shape) -> None:
        self._key: Final = key
        self._shape: Final = shape

    def stored(self) -> dict[str, Shape]:
        """Returns the key and shape of the whole."""
        return {self._key: (2, *self._shape[1:])}

    def rows(self, source: WeightSource, start: int, stop: int) -> np.ndarray:
        """Returns a copy of the row."""
        first, second = source.read_rows(self._key, 0, 2).astype(np.float32)
        return (first - second)[None][start:stop].astype(source.spec(self._key).dtype.numpy)
