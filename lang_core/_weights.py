"""Where weights come from, as far as everybody but a checkpoint's reader needs to know."""

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import numpy as np

from lang_core._spec import TensorSpec


@runtime_checkable
class WeightSource(Protocol):
    """Named tensors that are read when asked for, and only then.

    Reading changes nothing: the same key can be read again. Arrays are read-only where they are views.
    """

    def keys(self) -> Iterator[str]:
        """The keys, in the order of the source."""
        ...

    def has(self, key: str) -> bool:
        """Whether the source has this key."""
        ...

    def spec(self, key: str) -> TensorSpec:
        """The stored shape and dtype. Raises CheckpointError where there is no such key."""
        ...

    def read(self, key: str) -> np.ndarray:
        """The whole tensor."""
        ...

    def read_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Rows ``start`` to ``stop`` of the first axis (a rank-0 tensor is its own only row)."""
        ...

    def origin(self, key: str) -> str:
        """Where the tensor lies, for messages: a file's path."""
        ...
