"""GGUF files, written: metadata and descriptions of all tensors first, then each tensor's bytes at its place."""

import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import BinaryIO, Final, Self

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType
from gguf.constants import GGUF_DEFAULT_ALIGNMENT

from lang_core import CheckpointError, checked_choices
from transformer_core.checkpoints.gguf._header import ALIGNMENT, MAGIC
from transformer_core.checkpoints.gguf._metadata import NUMBERS, Value

_VERSION: Final = 3


@checked_choices
@dataclass(frozen=True, slots=True)
class GgufValue:
    """Value of a metadata field with the type that the file states.

    Attributes:
        value: value; a list for arrays.
        type: type of the value, or of the elements of a list.
    """

    value: Value
    type: GGUFValueType


@checked_choices
@dataclass(frozen=True, slots=True)
class GgufSpec:
    """Tensor that a file will hold.

    Attributes:
        shape: dimensions, the slowest first.
        type: type of the elements.
    """

    shape: tuple[int, ...]
    type: GGMLQuantizationType

    @property
    def nbytes(self) -> int:
        """Number of bytes of the data."""
        block, block_bytes = GGML_QUANT_SIZES[self.type]
        return int(np.prod(self.shape, dtype=np.int64)) // block * block_bytes


def typed(value: Value) -> GgufValue:
    """Returns a value with the type that llama.cpp's converter gives it; elements of a list have one type.

    >>> typed(3).type.name, typed([True]).type.name, typed([1]).type.name
    ('UINT32', 'BOOL', 'INT32')
    """
    one = value[0] if isinstance(value, list) and value else value
    if isinstance(one, bool):
        return GgufValue(value, GGUFValueType.BOOL)
    if isinstance(one, str):
        return GgufValue(value, GGUFValueType.STRING)
    if (isinstance(value, list) and any(isinstance(number, float) for number in value)) or isinstance(one, float):
        return GgufValue(value, GGUFValueType.FLOAT32)
    return GgufValue(value, GGUFValueType.INT32 if isinstance(value, list) else GGUFValueType.UINT32)


class GgufWriter:
    """Writer of one GGUF file. Tensors may come in any order; each must come once and in whole rows, from the first.

    Args:
        path: path of the new file.
        metadata: fields of the file.
        tensors: tensors by name, in the order of their data.
    """

    def __init__(
        self, path: str | os.PathLike[str], metadata: Mapping[str, GgufValue], tensors: Mapping[str, GgufSpec]
    ) -> None:
        self._path: Final = os.fspath(path)
        self._tensors: Final = tensors
        stated = metadata.get(ALIGNMENT)
        alignment = stated.value if stated is not None and isinstance(stated.value, int) else GGUF_DEFAULT_ALIGNMENT
        infos, offset = [], 0
        self._places: Final[dict[str, int]] = {}
        for name, spec in tensors.items():
            dims = struct.pack(f"<{len(spec.shape)}Q", *reversed(spec.shape))
            rank = struct.pack("<I", len(spec.shape))
            infos.append(_text(name) + rank + dims + struct.pack("<IQ", spec.type.value, offset))
            self._places[name] = offset
            offset = _aligned(offset + spec.nbytes, alignment)
        fields = [_text(key) + _field(value) for key, value in metadata.items()]
        header = b"".join([MAGIC, struct.pack("<IQQ", _VERSION, len(tensors), len(metadata)), *fields, *infos])
        begin = _aligned(len(header), alignment)
        self._places.update({name: begin + place for name, place in self._places.items()})
        self._left: Final = {name: spec.nbytes for name, spec in tensors.items()}
        self._file: Final[BinaryIO] = open(self._path, "wb")  # noqa: SIM115 - closed by __exit__
        self._file.write(header)
        self._file.truncate(begin + offset)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        missing = [name for name, left in self._left.items() if left]
        if kind is None and missing:
            raise CheckpointError(f"{self._path}: {len(missing)} tensors are not written whole, such as {missing[0]!r}")

    def write(self, name: str, data: np.ndarray) -> None:
        """Writes the next bytes of a tensor, an array [..] of any dtype.

        Raises:
            CheckpointError: more bytes than the tensor has.
        """
        flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        left = self._left[name]
        if flat.size > left:
            raise CheckpointError(f"{self._path}: tensor {name!r}: {flat.size} bytes are written, and {left} are left")
        self._file.seek(self._places[name] + self._tensors[name].nbytes - left)
        self._file.write(flat.data)
        self._left[name] = left - flat.size


def _aligned(position: int, alignment: int) -> int:
    return -(-position // alignment) * alignment


def _text(text: str) -> bytes:
    data = text.encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(data)) + data


def _field(field: GgufValue) -> bytes:
    """Returns the bytes of a value, its type first."""
    if not isinstance(field.value, list):
        return struct.pack("<I", field.type.value) + _values([field.value], field.type)
    head = struct.pack("<IIQ", GGUFValueType.ARRAY.value, field.type.value, len(field.value))
    return head + _values(field.value, field.type)


def _values(values: Sequence[Value], kind: GGUFValueType) -> bytes:
    if kind is GGUFValueType.STRING:
        return b"".join(_text(str(value)) for value in values)
    return np.array(values, NUMBERS[kind]).tobytes()
