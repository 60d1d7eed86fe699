"""Weights in memory."""

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from lang_core._dtypes import as_dtype
from lang_core._errors import CheckpointError, near_names
from lang_core._spec import TensorSpec
from lang_core._weights import rows_of


class MappingWeights:
    """Arrays by name, as a ``WeightSource``. Reading gives a read-only view; nothing is copied.

    Args:
        arrays: arrays of any shape by key, in the order of the keys.
        where: result of ``origin``.

    >>> weights = MappingWeights({"norm.weight": np.ones(3, np.float32)})
    >>> weights.spec("norm.weight"), weights.read_rows("norm.weight", 1, 3).tolist()
    (f32[3], [1.0, 1.0])
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], where: str = "memory") -> None:
        self._arrays: Final = arrays
        self._where: Final = where

    def keys(self) -> Iterator[str]:
        """Returns the keys, in the order of the mapping."""
        return iter(self._arrays)

    def has(self, key: str) -> bool:
        """Returns whether there is an array of this name."""
        return key in self._arrays

    def spec(self, key: str) -> TensorSpec:
        """Returns the array's shape and dtype.

        Raises:
            CheckpointError: the array does not exist.
        """
        array = self._found(key)
        return TensorSpec(array.shape, as_dtype(array.dtype))

    def encoding(self, key: str) -> None:
        """Returns None: arrays are not packed.

        Raises:
            CheckpointError: the array does not exist.
        """
        self._found(key)

    def read(self, key: str) -> np.ndarray:
        """Returns the array, of the shape that it was given in.

        Raises:
            CheckpointError: the array does not exist.
        """
        view = self._found(key).view()
        view.flags.writeable = False
        return view

    def read_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Returns rows [stop - start, ..] of the first axis.

        Raises:
            CheckpointError: the array or the rows do not exist.
        """
        return rows_of(self.read(key), start, stop, key, self._where)

    def origin(self, key: str) -> str:
        """Returns the mapping's origin, the same for every array.

        Raises:
            CheckpointError: the array does not exist.
        """
        self._found(key)
        return self._where

    def _found(self, key: str) -> np.ndarray:
        array = self._arrays.get(key)
        if array is None:
            raise CheckpointError(f"{self._where}: no tensor {key!r}{near_names(key, self._arrays)}")
        return array
