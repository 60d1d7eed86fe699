"""A safetensors file as a source of weights: views onto a map of the file, which is made at the first read."""

import os
from collections.abc import Iterable
from typing import Final

import numpy as np

from lang_core import CheckpointError, TensorSpec, rows_of
from transformer_core.checkpoints._header import DTYPES, STORED_DTYPES, HeaderEntry, read_header
from transformer_core.checkpoints._mapped import MappedFile
from transformer_core.checkpoints._tensor_file import TensorFile


class SafetensorsFile(TensorFile[HeaderEntry]):
    """Safetensors file. The header is checked on opening; the file is mapped at the first read.

    Arrays are read-only views onto the map: nothing is copied, and they stay valid after ``close()``.

    Args:
        path: path of the file.
        prefix: begins every key, before the file's own.

    Raises:
        CheckpointError: the file is absent, unreadable, or not a consistent safetensors file.
    """

    def __init__(self, path: str | os.PathLike[str], prefix: str = "") -> None:
        file = MappedFile(path, "safetensors file")
        with file.opened() as descriptor:
            header = read_header(descriptor, file.path)
        super().__init__(file, {f"{prefix}{key}": entry for key, entry in header.entries.items()})
        self._metadata: Final = header.metadata

    @property
    def metadata(self) -> dict[str, str]:
        """The header's ``__metadata__``."""
        return dict(self._metadata)

    def spec(self, key: str) -> TensorSpec:
        """Returns the stored shape and dtype.

        Raises:
            CheckpointError: the key is unknown, or its dtype cannot be read.
        """
        entry = self._entry(key)
        return TensorSpec(entry.shape, DTYPES[entry.dtype])

    def encoding(self, key: str) -> None:
        """Returns None: the format does not have packed tensors."""
        self._found(key)

    def read(self, key: str) -> np.ndarray:
        """Reads the whole tensor as a read-only view onto the map, of its spec's shape.

        Raises:
            CheckpointError: the key is unknown, its dtype cannot be read, or the file is closed or changed.
        """
        entry = self._entry(key)
        dtype = DTYPES[entry.dtype]
        return self._bytes(entry.begin, entry.nbytes).view(dtype.numpy).reshape(entry.shape)

    def read_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Reads rows ``start`` to ``stop`` of the first axis as a view; a rank-0 tensor is its own only row.

        Raises:
            CheckpointError: as for ``read``, or the tensor lacks these rows.
        """
        rows = rows_of(self.read(key), start, stop, key, self.path)
        self._will_read(key, start, rows.nbytes)
        return rows

    def stored_form(self, key: str) -> tuple[str, tuple[int, ...]]:
        """Returns the format's name of a tensor's dtype, such as ``"F8_E4M3"``, and its shape. Raises as ``origin``."""
        entry = self._found(key)
        return entry.dtype, entry.shape

    def read_stored(self, key: str) -> np.ndarray:
        """Reads a part of a quantised weight in its stored shape: as ``read``, also unsigned integers and 8-bit floats.

        Raises:
            CheckpointError: as for ``read``.
        """
        entry = self._found(key)
        dtype = STORED_DTYPES.get(entry.dtype)
        if dtype is None:
            raise self._unreadable(key, entry, STORED_DTYPES)
        return self._bytes(entry.begin, entry.nbytes).view(dtype).reshape(entry.shape)

    def _entry(self, key: str) -> HeaderEntry:
        entry = self._found(key)
        if entry.dtype not in DTYPES:
            raise self._unreadable(key, entry, DTYPES)
        return entry

    def _unreadable(self, key: str, entry: HeaderEntry, known: Iterable[str]) -> CheckpointError:
        return CheckpointError(
            f"{self.path}: tensor {key!r} has dtype {entry.dtype}, readable are {', '.join(known)}: "
            "convert the checkpoint to one of these"
        )

    def _will_read(self, key: str, start: int, nbytes: int) -> None:
        """Starts reading these rows from disk."""
        entry = self._entries[key]
        rows = entry.shape[0] if entry.shape else 1
        begin = entry.begin + (entry.nbytes // rows * start if rows else 0)
        self._file.will_read(begin, nbytes)
