"""Files of named tensors, of any format."""

import abc
from collections.abc import Iterator, Mapping
from typing import Final, Generic, Self, TypeVar

import numpy as np

from lang_core import CheckpointError, TensorSpec, near_names
from transformer_core.checkpoints._mapped import MappedFile

Entry = TypeVar("Entry")


class TensorFile(abc.ABC, Generic[Entry]):
    """File with a checked header. Implements ``lang_core.WeightSource``.

    The file is mapped at the first read, and must not be truncated while it is read: a process that reads a map beyond
    the end of its file is killed.

    Args:
        file: file, not mapped yet.
        entries: header entry of each tensor by key, in the order of the data.

    Attributes:
        path: path of the file.
    """

    def __init__(self, file: MappedFile, entries: Mapping[str, Entry]) -> None:
        self.path: Final = file.path
        self._file: Final = file
        self._entries: Final = entries

    def keys(self) -> Iterator[str]:
        """Yields the keys, in the order of the data."""
        return iter(self._entries)

    def has(self, key: str) -> bool:
        """Returns whether the file has a key."""
        return key in self._entries

    @abc.abstractmethod
    def spec(self, key: str) -> TensorSpec:
        """Returns the shape and the dtype that reading gives."""

    @abc.abstractmethod
    def encoding(self, key: str) -> str | None:
        """Returns the encoding of a tensor; None if it is not packed."""

    @abc.abstractmethod
    def read(self, key: str) -> np.ndarray:
        """Reads the whole tensor."""

    @abc.abstractmethod
    def read_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Reads rows ``start`` to ``stop`` of the first axis."""

    def origin(self, key: str) -> str:
        """Returns the path of the file. Raises CheckpointError for an unknown key."""
        self._found(key)
        return self.path

    def close(self) -> None:
        """Releases the map, which goes with the last live view of it. Closing twice is harmless."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _found(self, key: str) -> Entry:
        entry = self._entries.get(key)
        if entry is None:
            raise CheckpointError(f"{self.path}: no tensor {key!r}{near_names(key, self._entries)}")
        return entry

    def _bytes(self, begin: int, count: int) -> np.ndarray:
        """Returns bytes of the file, u8 [count], as a read-only view."""
        return np.frombuffer(self._file.mapped(), np.uint8, count, begin)
