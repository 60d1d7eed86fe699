"""GGUF checkpoints: one file, or the files that a model was split into."""

import os
import re
from collections.abc import Mapping
from typing import Final

import numpy as np
from gguf import GGMLQuantizationType, GGUFValueType

from lang_core import CheckpointError
from transformer_core.checkpoints._parts import CheckpointInParts
from transformer_core.checkpoints.gguf._file import GgufFile
from transformer_core.checkpoints.gguf._metadata import Value

_COUNT: Final = "split.count"
_NUMBER: Final = "split.no"
_TENSORS: Final = "split.tensors.count"
_PART: Final = re.compile(r"(?P<stem>.*)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf")
_MOST_PARTS: Final = 99_999


class GgufCheckpoint(CheckpointInParts[GgufFile]):
    """Tensors and metadata of a model.

    For a model in several files (``llama-gguf-split``) any part may be given; the others are found beside it by name.

    Args:
        path: path of the file, or of a part.

    Attributes:
        path: path as given.
        metadata: metadata of the file, or of the first part.
        types: types of the metadata, of lists those of the elements.

    Raises:
        CheckpointError: a file is absent or damaged, or the parts do not belong together.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        given = GgufFile(path)
        super().__init__(given.path, _parts(given))
        self.metadata: Final[Mapping[str, Value]] = self._files[0].metadata
        self.types: Final[Mapping[str, GGUFValueType]] = self._files[0].types
        self._check_count()

    @property
    def types_of(self) -> dict[str, GGMLQuantizationType]:
        """Types of the stored tensors, by key, in the order of their data."""
        return {key: kind for file in self._files for key, kind in file.types_of.items()}

    def read_matrix_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Reads rows of a tensor as a matrix; see ``GgufFile.read_matrix_rows``."""
        return self._file(key).read_matrix_rows(key, start, stop)

    def read_packed(self, key: str) -> np.ndarray:
        """Reads the bytes of a tensor; see ``GgufFile.read_packed``."""
        return self._file(key).read_packed(key)

    def packed_as(self, key: str) -> str | None:
        """Returns the encoding of a packed matrix; see ``GgufFile.packed_as``."""
        return self._file(key).packed_as(key)

    def read_packed_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Reads the bytes of rows; see ``GgufFile.read_packed_rows``."""
        return self._file(key).read_packed_rows(key, start, stop)

    def _check_count(self) -> None:
        wanted = self.metadata.get(_TENSORS)
        if len(self._files) > 1 and wanted is not None and wanted != len(self._owner):
            raise CheckpointError(
                f"{self.path}: {_TENSORS} is {wanted}, the {len(self._files)} files have {len(self._owner)} tensors: "
                "fetch them again"
            )


def _parts(given: GgufFile) -> list[GgufFile]:
    """Returns all files of the model."""
    count = given.metadata.get(_COUNT, 0)
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= _MOST_PARTS:
        raise CheckpointError(f"{given.path}: {_COUNT} is {count!r:.80}, expected a number of files")
    if count <= 1:
        return [given]
    folder, name = os.path.split(given.path)
    match = _PART.fullmatch(name)
    if match is None or int(match["count"]) != count or not 1 <= int(match["number"]) <= count:
        raise CheckpointError(
            f"{given.path}: is one of {count} files of a model, which are called name-00001-of-{count:05d}.gguf and so "
            "on: give it its own name again, or join them with llama-gguf-split --merge"
        )
    files: list[GgufFile] = []
    for number in range(1, count + 1):
        path = os.path.join(folder, f"{match['stem']}-{number:05d}-of-{count:05d}.gguf")
        if not os.path.exists(path):
            raise CheckpointError(f"{given.path}: part {number} of {count} is missing, expected {path}: fetch it")
        files.append(_checked_part(given if path == given.path else GgufFile(path), number, count))
    return files


def _checked_part(file: GgufFile, number: int, count: int) -> GgufFile:
    for key, expected in {_NUMBER: number - 1, _COUNT: count}.items():
        value = file.metadata.get(key)
        if value != expected:
            raise CheckpointError(f"{file.path}: {key} is {value!r:.80}, expected {expected}: fetch the file again")
    return file
