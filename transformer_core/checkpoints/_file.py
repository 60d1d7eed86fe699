"""One safetensors file as a source of weights: views onto a lazily made map of the file."""

import os
from collections.abc import Iterator
from typing import Final, Self

import numpy as np

from lang_core import CheckpointError, TensorSpec, near_names, rows_of
from transformer_core.checkpoints._header import DTYPES, Header, HeaderEntry, read_header
from transformer_core.checkpoints._mapped import MappedFile


class SafetensorsFile:
    """A safetensors file. The header is checked on opening; the file is mapped at the first read.

    Arrays are read-only views onto the map: nothing is copied, and they stay valid after ``close()``. The file must
    not be truncated while it is read: no process survives reading a map beyond the end of its file.

    Raises:
        CheckpointError: the file is absent, unreadable, or not a consistent safetensors file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file: Final = MappedFile(path, "safetensors file")
        self.path: Final = self._file.path
        with self._file.opened() as descriptor:
            self._header: Final[Header] = read_header(descriptor, self.path)

    @property
    def metadata(self) -> dict[str, str]:
        """The header's ``__metadata__``."""
        return dict(self._header.metadata)

    def keys(self) -> Iterator[str]:
        """The keys, in the order of the data."""
        return iter(self._header.entries)

    def has(self, key: str) -> bool:
        """Whether the file has this key."""
        return key in self._header.entries

    def spec(self, key: str) -> TensorSpec:
        """The stored shape and dtype.

        Raises:
            CheckpointError: no such key, or a dtype that cannot be read.
        """
        entry = self._entry(key)
        return TensorSpec(entry.shape, DTYPES[entry.dtype])

    def encoding(self, key: str) -> None:
        """None: the format packs nothing."""
        self._found(key)

    def read(self, key: str) -> np.ndarray:
        """The whole tensor, as a read-only view onto the map.

        Raises:
            CheckpointError: no such key, a dtype that cannot be read, a closed or changed file.
        """
        entry = self._entry(key)
        dtype = DTYPES[entry.dtype]
        flat = np.frombuffer(self._file.mapped(), np.uint8, entry.nbytes, entry.begin)
        return flat.view(dtype.numpy).reshape(entry.shape)

    def read_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Rows ``start`` to ``stop`` of the first axis (a rank-0 tensor is its own only row), as a read-only view.

        Raises:
            CheckpointError: as ``read``, or the tensor has no such rows.
        """
        rows = rows_of(self.read(key), start, stop, key, self.path)
        self._will_read(key, start, rows.nbytes)
        return rows

    def origin(self, key: str) -> str:
        """The file's path."""
        self._found(key)
        return self.path

    def close(self) -> None:
        """Lets go of the map. Live views keep it, and it goes with the last of them. Closing twice is harmless."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _found(self, key: str) -> HeaderEntry:
        entry = self._header.entries.get(key)
        if entry is None:
            raise CheckpointError(f"{self.path}: no tensor {key!r}{near_names(key, self._header.entries)}")
        return entry

    def _entry(self, key: str) -> HeaderEntry:
        entry = self._found(key)
        if entry.dtype not in DTYPES:
            raise CheckpointError(
                f"{self.path}: tensor {key!r} has dtype {entry.dtype}, readable are {', '.join(DTYPES)}: "
                "convert the checkpoint to one of these"
            )
        return entry

    def _will_read(self, key: str, start: int, nbytes: int) -> None:
        """Starts reading these rows from the disk."""
        entry = self._header.entries[key]
        rows = entry.shape[0] if entry.shape else 1
        begin = entry.begin + (entry.nbytes // rows * start if rows else 0)
        self._file.will_read(begin, nbytes)
