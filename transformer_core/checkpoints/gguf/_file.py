"""A GGUF file as a source of weights: views onto its map, and packed tensors unpacked a few rows at a time."""

import math
import os
from collections.abc import Mapping
from typing import Final

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType, quants

from lang_core import CheckpointError, DType, TensorSpec, bf16, check_rows, f16, f32, f64, i8, i32, i64
from transformer_core.checkpoints._mapped import MappedFile
from transformer_core.checkpoints._tensor_file import TensorFile
from transformer_core.checkpoints.gguf._header import GgufTensor, read_header
from transformer_core.checkpoints.gguf._metadata import Value

_Type = GGMLQuantizationType

PLAIN: Final[dict[GGMLQuantizationType, DType]] = {
    _Type.F32: f32, _Type.F16: f16, _Type.BF16: bf16, _Type.F64: f64, _Type.I8: i8, _Type.I32: i32, _Type.I64: i64,
}  # fmt: skip
"""Types that are read as they are stored."""

PACKED: Final = (
    _Type.Q8_0, _Type.Q4_0, _Type.Q4_1, _Type.Q5_0, _Type.Q5_1, _Type.Q2_K, _Type.Q3_K, _Type.Q4_K, _Type.Q5_K,
    _Type.Q6_K, _Type.IQ4_NL, _Type.IQ4_XS, _Type.MXFP4, _Type.NVFP4, _Type.TQ1_0, _Type.TQ2_0, _Type.IQ1_S,
    _Type.IQ1_M, _Type.IQ2_XXS, _Type.IQ2_XS, _Type.IQ2_S, _Type.IQ3_XXS, _Type.IQ3_S,
)  # fmt: skip
"""Types that the reference of the gguf package unpacks to f32."""


def packed_bytes(encoding: str, elements: int) -> int | None:
    """Returns the bytes of this many elements in whole blocks; None if the encoding is not one of GGUF.

    >>> packed_bytes("q4_1", 64)
    40
    """
    kind = _Type.__members__.get(encoding.upper())
    if kind is None:
        return None
    block, block_bytes = GGML_QUANT_SIZES[kind]
    return elements // block * block_bytes


class GgufFile(TensorFile[GgufTensor]):
    """GGUF file. The header is checked on opening; the file is mapped at the first read.

    Tensors of plain types are read-only views, which stay valid after ``close()``; of packed tensors only the rows that
    are read are unpacked.

    Raises:
        CheckpointError: the file is absent, unreadable, or not a consistent GGUF file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        file = MappedFile(path, "GGUF file")
        with file.opened() as descriptor:
            header = read_header(descriptor, file.path)
        super().__init__(file, header.tensors)
        self.metadata: Final[Mapping[str, Value]] = header.metadata
        self.types: Final[Mapping[str, GGUFValueType]] = header.types

    @property
    def data_begin(self) -> int:
        """First byte of the tensors' data, which follows the header; 0 without tensors."""
        return min((tensor.begin for tensor in self._entries.values()), default=0)

    @property
    def types_of(self) -> dict[str, GGMLQuantizationType]:
        """Types of the tensors, by key, in the order of their data."""
        return {key: tensor.type for key, tensor in self._entries.items()}

    def spec(self, key: str) -> TensorSpec:
        """Returns the shape, and the dtype that reading gives: f32 for packed tensors.

        Raises:
            CheckpointError: the key is unknown, or its type cannot be read.
        """
        tensor = self._readable(key)
        return TensorSpec(tensor.shape, PLAIN.get(tensor.type, f32))

    def encoding(self, key: str) -> str | None:
        """Returns the packed type, e.g. ``"q8_0"``; None for plain types."""
        tensor = self._found(key)
        return None if tensor.type in PLAIN else tensor.type.name.lower()

    def read(self, key: str) -> np.ndarray:
        """Reads the tensor in its spec's shape. Raises CheckpointError as ``spec``, or of a closed or changed file."""
        tensor = self._readable(key)
        if not tensor.shape:
            return self._plain(tensor)
        return self.read_rows(key, 0, tensor.shape[0])

    def read_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Reads rows [stop - start, ..] of the first axis; of a packed tensor only these are unpacked.

        Raises:
            CheckpointError: as for ``read``, or the tensor lacks these rows.
        """
        tensor = self._readable(key)
        check_rows(tensor.shape, start, stop, key, self.path)
        if not tensor.shape:
            whole = self._plain(tensor)
            return whole if stop > start else whole.reshape(1)[:0]
        if tensor.type in PLAIN:
            rows = self._plain(tensor)[start:stop]
            row_bytes = tensor.nbytes // tensor.shape[0] if tensor.shape[0] else 0
            self._file.will_read(tensor.begin + row_bytes * start, rows.nbytes)
            return rows
        return self._unpacked(tensor, tensor.shape, start, stop)

    def read_matrix_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Reads rows of a tensor as a matrix, [product of all dims but the last, last dim]; else as ``read_rows``.

        Raises:
            CheckpointError: as for ``read_rows``, or the tensor has fewer than two dimensions.
        """
        tensor = self._readable(key)
        if len(tensor.shape) < 2:
            raise CheckpointError(f"{self.path}: tensor {key!r} of shape {list(tensor.shape)} has no matrices")
        shape = (math.prod(tensor.shape[:-1]), tensor.shape[-1])
        check_rows(shape, start, stop, key, self.path)
        if tensor.type in PLAIN:
            return self._plain(tensor).reshape(shape)[start:stop]
        return self._unpacked(tensor, shape, start, stop)

    def read_packed(self, key: str) -> np.ndarray:
        """Reads the bytes of a tensor as stored, u8 [.., bytes of a row], as a read-only view.

        Raises:
            CheckpointError: as for ``read``.
        """
        tensor = self._readable(key)
        flat = self._bytes(tensor.begin, tensor.nbytes)
        if not tensor.nbytes:
            return flat.reshape(*tensor.shape[:-1], 0)
        return flat.reshape(*tensor.shape[:-1], tensor.nbytes // max(1, int(np.prod(tensor.shape[:-1]))))

    def packed_as(self, key: str) -> str | None:
        """Returns the encoding of packed matrices, which can be read as stored; None for other tensors."""
        return self.encoding(key) if len(self._found(key).shape) > 1 else None

    def read_packed_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Reads rows [stop - start, ..] of the first axis of ``read_packed``; else as ``read_rows``.

        Raises:
            CheckpointError: the tensor's type cannot be read.
        """
        tensor = self._readable(key)
        check_rows(tensor.shape, start, stop, key, self.path)
        rows = self.read_packed(key)[start:stop]
        self._file.will_read(tensor.begin + start * (tensor.nbytes // max(1, tensor.shape[0])), rows.nbytes)
        return rows

    def _readable(self, key: str) -> GgufTensor:
        tensor = self._found(key)
        if tensor.type not in PLAIN and tensor.type not in PACKED:
            known = ", ".join(kind.name for kind in (*PLAIN, *PACKED))
            raise CheckpointError(
                f"{self.path}: tensor {key!r} has type {tensor.type.name}, readable are {known}: "
                "take a file in one of these, or convert the model again"
            )
        return tensor

    def _plain(self, tensor: GgufTensor) -> np.ndarray:
        flat = self._bytes(tensor.begin, tensor.nbytes)
        return flat.view(PLAIN[tensor.type].numpy).reshape(tensor.shape)

    def _unpacked(self, tensor: GgufTensor, shape: tuple[int, ...], start: int, stop: int) -> np.ndarray:
        """Unpacks rows of a packed tensor, seen in this shape, to f32."""
        block, block_bytes = GGML_QUANT_SIZES[tensor.type]
        row = int(np.prod(shape[1:]))
        # Rows of a matrix are whole blocks; those of a vector, its elements, are not.
        first, last = start * row // block, -(-stop * row // block)
        begin, nbytes = tensor.begin + first * block_bytes, (last - first) * block_bytes
        packed = self._bytes(begin, nbytes)
        self._file.will_read(begin, nbytes)
        if not packed.size:
            return np.zeros((stop - start, *shape[1:]), np.float32)
        inner = shape[-1] // block * block_bytes if len(shape) > 1 else nbytes
        with np.errstate(all="ignore"):  # a scale may be infinite or NaN; such weights are counted and reported
            flat = quants.dequantize(packed.reshape(-1, inner), tensor.type).reshape(-1)
        skipped = start * row - first * block
        return flat[skipped : skipped + (stop - start) * row].reshape(stop - start, *shape[1:])
