"""Weights that are kept once they were read."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from lang_core._spec import TensorSpec
from lang_core._weights import WeightSource, rows_of


class CachedWeights:
    """Keeps whole tensors that were read, up to a budget: for eager runs on a source if reading takes work.

    Tensors that were kept first stay. A model reads its weights in the same order again and again, so with less room
    than all of them take, giving up the oldest for the newest would find nothing at the next round; the first ones are
    found.

    Args:
        source: where the weights are.
        budget_bytes: how much may be kept in all. Rows are not kept, but taken from kept tensors.
    """

    def __init__(self, source: WeightSource, budget_bytes: int) -> None:
        self._source: Final = source
        self._room = budget_bytes
        self._kept: Final[dict[str, np.ndarray]] = {}

    def keys(self) -> Iterator[str]:
        """Returns the source's keys."""
        return self._source.keys()

    def has(self, key: str) -> bool:
        """Returns whether the source has this key."""
        return self._source.has(key)

    def spec(self, key: str) -> TensorSpec:
        """Returns the source's spec."""
        return self._source.spec(key)

    def encoding(self, key: str) -> str | None:
        """Returns the source's encoding."""
        return self._source.encoding(key)

    def read(self, key: str) -> np.ndarray:
        """Returns the whole tensor, of its spec's shape, read-only: the same array each time if it is kept."""
        kept = self._kept.get(key)
        if kept is not None:
            return kept
        array = self._source.read(key).view()
        array.flags.writeable = False
        if array.nbytes <= self._room:
            self._room -= array.nbytes
            self._kept[key] = array
        return array

    def read_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Returns rows [stop - start, ..] of the first axis, of the kept tensor or else of the source."""
        kept = self._kept.get(key)
        if kept is None:
            return self._source.read_rows(key, start, stop)
        return rows_of(kept, start, stop, key, self.origin(key))

    def origin(self, key: str) -> str:
        """Returns the source's origin."""
        return self._source.origin(key)
