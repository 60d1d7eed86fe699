"""A checkpoint of one file or of several: what is the same whatever their format."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, Generic, Self, TypeVar

import numpy as np

from lang_core import CheckpointError, TensorSpec, near_names
from transformer_core.checkpoints._tensor_file import TensorFile

File = TypeVar("File", bound=TensorFile[Any])


class CheckpointInParts(Generic[File]):
    """The tensors of files, each in one of them. Implements ``lang_core.WeightSource``.

    Args:
        path: of the checkpoint, as the user gave it.
        files: its files, in order.

    Attributes:
        path: of the checkpoint.

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
        """The files, in order."""
        return [file.path for file in self._files]

    def keys(self) -> Iterator[str]:
        """The keys: file by file, in the order of the data."""
        return iter(self._owner)

    def has(self, key: str) -> bool:
        """Whether a file of the checkpoint has this key."""
        return key in self._owner

    def spec(self, key: str) -> TensorSpec:
        """As the file's ``spec``. Raises CheckpointError: no such key."""
        return self._file(key).spec(key)

    def encoding(self, key: str) -> str | None:
        """As the file's ``encoding``. Raises CheckpointError: no such key."""
        return self._file(key).encoding(key)

    def read(self, key: str) -> np.ndarray:
        """As the file's ``read``. Raises CheckpointError: no such key."""
        return self._file(key).read(key)

    def read_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """As the file's ``read_rows``. Raises CheckpointError: no such key."""
        return self._file(key).read_rows(key, start, stop)

    def origin(self, key: str) -> str:
        """The path of the file that holds the key. Raises CheckpointError: no such key."""
        return self._file(key).path

    def close(self) -> None:
        """Closes every file: see ``TensorFile.close``."""
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
