"""A file of named tensors: what is the same whatever its format."""

import abc
from collections.abc import Iterator, Mapping
from typing import Final, Generic, Self, TypeVar

import numpy as np

from lang_core import CheckpointError, TensorSpec, near_names
from transformer_core.checkpoints._mapped import MappedFile

Entry = TypeVar("Entry")


class TensorFile(abc.ABC, Generic[Entry]):
    """A file whose header was read and checked. Implements ``lang_core.WeightSource``.

    The file is mapped at the first read, and must not be truncated while it is read: no process survives reading a map
    beyond the end of its file.

    Args:
        file: the file, not mapped yet.
        entries: what the header says of each tensor, by key, in the order of the data.

    Attributes:
        path: of the file.
    """

    def __init__(self, file: MappedFile, entries: Mapping[str, Entry]) -> None:
        self.path: Final = file.path
        self._file: Final = file
        self._entries: Final = entries

    def keys(self) -> Iterator[str]:
        """The keys, in the order of the data."""
        return iter(self._entries)

    def has(self, key: str) -> bool:
        """Whether the file has this key."""
        return key in self._entries

    @abc.abstractmethod
    def spec(self, key: str) -> TensorSpec:
        """The shape and the dtype that reading gives."""

    @abc.abstractmethod
    def encoding(self, key: str) -> str | None:
        """How the tensor is packed; None where it is not."""

    @abc.abstractmethod
    def read(self, key: str) -> np.ndarray:
        """The whole tensor."""

    @abc.abstractmethod
    def read_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Rows ``start`` to ``stop`` of the first axis."""

    def origin(self, key: str) -> str:
        """The file's path. Raises CheckpointError: no such key."""
        self._found(key)
        return self.path

    def close(self) -> None:
        """Lets go of the map. Live views keep it, and it goes with the last of them. Closing twice is harmless."""
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
        """Bytes of the file, u8 [count], a read-only view."""
        return np.frombuffer(self._file.mapped(), np.uint8, count, begin)
