"""Parameter archive as a source of weights: the eager context reads the same bytes as the device."""

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

import numpy as np

from lang_core import CheckpointError, Part, TensorSpec, near_names, rows_of
from run_iree.archive._parts import read_part
from run_iree.archive._reader import ArchiveRecord, read_archive_index


class ArchiveWeights:
    """Tensors of an archive made by ``write_archive``, by name, as read-only views without a copy.

    Views stay valid after ``close``, which unmaps the file if no view is left.

    Attributes:
        part_bytes: bytes of the parts that were read so far.
    """

    def __init__(self, path: Path) -> None:
        """Maps the archive.

        Raises:
            InputError: the archive is missing or damaged.
        """
        self._path: Final = path
        self._records: Final = read_archive_index(path)
        with path.open("rb") as file:
            self._map: Final = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.part_bytes = 0

    def keys(self) -> Iterator[str]:
        """Yields the names, in the order of the archive."""
        return iter(self._records)

    def has(self, key: str) -> bool:
        """Returns whether the archive has this name."""
        return key in self._records

    def spec(self, key: str) -> TensorSpec:
        """Returns the shape and dtype.

        Raises:
            CheckpointError: the name is not found, or the archive does not tell its shape.
        """
        return self._record(key)[1]

    def encoding(self, key: str) -> None:
        """Returns None: tensors lie in the archive in their spec's dtype.

        Raises:
            CheckpointError: the archive lacks the tensor, or does not tell its shape.
        """
        self._record(key)

    def read(self, key: str) -> np.ndarray:
        """Returns the whole tensor, of its spec's shape.

        Raises:
            CheckpointError: the archive lacks the tensor, or does not tell its shape.
        """
        record, spec = self._record(key)
        flat = np.frombuffer(self._map, spec.dtype.numpy, spec.size, record.offset)
        return flat.reshape(spec.shape)

    def read_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Returns rows of the first axis; a rank-0 tensor is its own only row."""
        return rows_of(self.read(key), start, stop, key, str(self._path))

    def read_part(self, key: str, part: Part) -> np.ndarray:
        """Returns a part, of its shape: a view of a map of it alone if it lies in one piece, else a copy.

        Other parts of the file are neither read nor touched in memory.

        Raises:
            CheckpointError: the file cannot be read.
        """
        record, spec = self._record(key)
        try:
            with self._path.open("rb", buffering=0) as file:
                array = read_part(file.fileno(), record.offset, spec, part)
        except (OSError, EOFError, ValueError) as error:
            raise CheckpointError(f"{self._path}: cannot read {key!r} ({error}): export again") from None
        self.part_bytes += array.nbytes
        return array

    def origin(self, key: str) -> str:
        """Returns the archive's path.

        Raises:
            CheckpointError: the archive lacks the tensor, or does not tell its shape.
        """
        self._record(key)
        return str(self._path)

    def _record(self, key: str) -> tuple[ArchiveRecord, TensorSpec]:
        record = self._records.get(key)
        if record is None:
            raise CheckpointError(
                f"{self._path}: no parameter {key!r} in the archive{near_names(key, self._records)}: export again"
            )
        if record.spec is None:
            raise CheckpointError(
                f"{self._path}: the archive does not tell the shape of {key!r}: it was not written by an export"
            )
        return record, record.spec

    def close(self) -> None:
        """Closes the file."""
        try:
            self._map.close()
        except BufferError:
            return  # views are left; the file is unmapped with the last of them

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
