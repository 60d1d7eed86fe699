"""Checkpoints of one file or several, of any format."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, Generic, Self, TypeVar

import numpy as np

from lang_core import CheckpointError, TensorSpec, near_names
from transformer_core.checkpoints._tensor_file import TensorFile

File = TypeVar("File", bound=TensorFile[Any])


class CheckpointInParts(Generic[File]):
    """Tensors of several files, each in one of them. Implements ``lang_core.WeightSource``.

    Args:
        path: path of the checkpoint, as the user gave it.
        files: files of the checkpoint, in order.

    Attributes:
        path: path of the checkpoint.

    Raises:
        CheckpointError: two files have a tensor of the same name.
    """

    def __init__(self, path: str, files: Sequence[File]) -> None:
        self.path: Final = path
        self._files: Final = files
        self._owner: Final[dict[str, File]] = {}
        for file in files:
            for key in file.keys():  # noqa: SIM118
                if self._owner.setdefault(key, file) is not file:
                    raise CheckpointError(
                        f"{file.path}: tensor {key!r} is in {self._owner[key].path}, too: fetch both files again"
                    )

    @property
    def paths(self) -> list[str]:
        """Paths of the files, in order."""
        return [file.path for file in self._files]

    def keys(self) -> Iterator[str]:
        """Yields the keys, file by file, in the order of the data."""
        return iter(self._owner)

    def has(self, key: str) -> bool:
        """Returns whether a file of the checkpoint has a key."""
        return key in self._owner

    def spec(self, key: str) -> TensorSpec:
        """Returns the file's spec of a key. Raises CheckpointError for an unknown key."""
        return self._file(key).spec(key)

    def encoding(self, key: str) -> str | None:
        """Returns the file's encoding of a key. Raises CheckpointError for an unknown key."""
        return self._file(key).encoding(key)

    def read(self, key: str) -> np.ndarray:
        """Reads a tensor from its file. Raises CheckpointError for an unknown key."""
        return self._file(key).read(key)

    def read_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Reads rows of a tensor from its file. Raises CheckpointError for an unknown key."""
        return self._file(key).read_rows(key, start, stop)

    def origin(self, key: str) -> str:
        """Returns the path of the file that holds a key. Raises CheckpointError for an unknown key."""
        return self._file(key).path

    def close(self) -> None:
        """Closes every file; see ``TensorFile.close``."""
        for file in self._files:
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _file(self, key: str) -> File:
        file = self._owner.get(key)
        if file is None:
            raise CheckpointError(f"{self.path}: no tensor {key!r} in the checkpoint{near_names(key, self._owner)}")
        return file
