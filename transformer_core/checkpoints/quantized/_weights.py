"""Quantised checkpoints as sources of the weights that they stand for."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from lang_core import CheckpointError, TensorSpec, check_rows, f32, matrix_rows_of
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints.quantized._awq import awq_contents
from transformer_core.checkpoints.quantized._compressed import compressed_contents
from transformer_core.checkpoints.quantized._fp8 import fp8_contents
from transformer_core.checkpoints.quantized._gptq import gptq_contents
from transformer_core.checkpoints.quantized._matrix import PackableMatrix, QuantizedMatrix, matrix_height
from transformer_core.checkpoints.quantized._mxfp4 import mxfp4_contents
from transformer_core.checkpoints.quantized._stored import Contents, StoredTensors

METHODS: Final[Mapping[str, Callable[[ConfigFields, StoredTensors], Contents]]] = {
    "fp8": fp8_contents,
    "fbgemm_fp8": fp8_contents,
    "mxfp4": mxfp4_contents,
    "compressed-tensors": compressed_contents,
    "gptq": gptq_contents,
    "awq": awq_contents,
}
"""Readers of checkpoints by ``quant_method``."""

_FIELDS: Final = ("quantization_config", "compression_config")


def quantization_fields(config: ConfigFields) -> ConfigFields | None:
    """Returns the fields that say how a checkpoint is quantised; None for an unquantised one.

    Args:
        config: fields of config.json.

    Raises:
        ConfigError: the method is missing or unknown.
    """
    name = next((name for name in _FIELDS if config.has(name)), None)
    if name is None:
        return None
    fields = config.object(name)
    _check_method(fields)
    return fields


def _check_method(fields: ConfigFields) -> None:
    for name in ("load_in_4bit", "load_in_8bit"):
        if fields.values.get(name) and not fields.has("quant_method"):
            fields.refuse(name, f"a quant_method among {', '.join(METHODS)}, not bitsandbytes")
    if fields.values.get("quant_method") not in tuple(METHODS):
        fields.refuse("quant_method", f"one of {', '.join(METHODS)} (or take the original model)")


class QuantizedWeights:
    """Weights of a quantised checkpoint under the names and in the shapes that they would have unquantised.

    Implements ``lang_core.WeightSource``, ``MatrixRows`` and ``PackedRows``. A quantised weight is f32, unpacked a few
    rows at a time as the format's own library does in f32. If an encoding of packed weights holds exactly the same
    numbers, the rows can be read in that encoding, too. All other tensors are the checkpoint's.

    Args:
        source: checkpoint.
        values: fields of ``quantization_config``.
        where: place of these fields, for messages.

    Attributes:
        method: name of the method of quantization.
        notes: sentences for a report about ignored fields of ``quantization_config``.
        ignorable: keys of biases that are all 0, which models may lack: for ``audit``.

    Raises:
        ConfigError: a setting is not supported.
        CheckpointError: a weight lacks a part, or its parts do not fit each other.
    """

    def __init__(self, source: StoredTensors, values: Mapping[str, Any], where: str = "quantization_config") -> None:
        fields = ConfigFields(values, where)
        self._source: Final = source
        self.method: Final = fields.choice("quant_method", METHODS)
        self._contents: Final[Contents] = METHODS[self.method](fields, source)
        self._keys: Final = dict.fromkeys(self._contents.keys(source))
        self._packings: Final[dict[str, str | None]] = {}
        self.notes: Final = tuple(self._contents.notes)
        self.ignorable: Final = tuple(self._contents.zero_biases)

    def keys(self) -> Iterator[str]:
        """Yields the keys, each weight in the place of its first stored part."""
        return iter(self._keys)

    def has(self, key: str) -> bool:
        """Returns whether there is such a weight."""
        return key in self._keys

    def spec(self, key: str) -> TensorSpec:
        """Returns the weight's own shape, in f32 if it is quantised. Raises CheckpointError for an unknown key."""
        matrix = self._matrix(key)
        return self._source.spec(key) if matrix is None else TensorSpec(matrix.shape, f32)

    def encoding(self, key: str) -> str | None:
        """Returns the name of a quantised weight's format, such as ``"fp8"``; None for others."""
        matrix = self._matrix(key)
        return self._source.encoding(key) if matrix is None else matrix.kind

    def stored_bytes(self, key: str) -> int:
        """Returns the bytes that the checkpoint has of a weight, scales included."""
        matrix = self._matrix(key)
        if matrix is None:
            return self._source.spec(key).nbytes
        return sum(self._source.read_stored(part).nbytes for part in matrix.parts)

    def read(self, key: str) -> np.ndarray:
        """Reads the whole weight, of its spec's shape."""
        matrix = self._matrix(key)
        return self._source.read(key) if matrix is None else self.read_rows(key, 0, matrix.shape[0])

    def read_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Reads rows [stop - start, ..] of the first axis; of a quantised weight only these are unpacked.

        Raises:
            CheckpointError: the rows do not exist, or a scale or zero point of theirs is invalid.
        """
        matrix = self._matrix(key)
        if matrix is None:
            return self._source.read_rows(key, start, stop)
        check_rows(matrix.shape, start, stop, key, self.origin(key))
        height = matrix_height(matrix.shape[1:])
        return matrix.unpacked(start * height, stop * height).reshape(stop - start, *matrix.shape[1:])

    def read_matrix_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Reads rows of a weight as a matrix, [product of all dims but the last, last dim]; else as ``read_rows``."""
        matrix = self._matrix(key)
        if matrix is None:
            return matrix_rows_of(self._source, key, start, stop)
        check_rows((matrix_height(matrix.shape),), start, stop, key, self.origin(key))
        return matrix.unpacked(start, stop)

    def packed_as(self, key: str) -> str | None:
        """Returns the encoding of packed weights that holds exactly these numbers; None if none does.

        Scales and zero points are read the first time.
        """
        matrix = self._matrix(key)
        if not isinstance(matrix, PackableMatrix):
            return None
        if key not in self._packings:
            self._packings[key] = matrix.packed_as()
        return self._packings[key]

    def read_packed_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Reads rows of a matrix in the encoding that ``packed_as`` names, u8 [rows, bytes of a row].

        Raises:
            CheckpointError: packed encodings cannot hold the tensor exactly.
        """
        encoding, matrix = self.packed_as(key), self._matrix(key)
        if encoding is None or not isinstance(matrix, PackableMatrix):
            raise CheckpointError(f"{self.origin(key)}: no packed encoding holds tensor {key!r} exactly: read its rows")
        check_rows(matrix.shape, start, stop, key, self.origin(key))
        return matrix.packed(encoding, start, stop)

    def origin(self, key: str) -> str:
        """Returns the path of the file that has the weight's first part."""
        matrix = self._matrix(key)
        return self._source.origin(key if matrix is None else matrix.parts[0])

    def _matrix(self, key: str) -> QuantizedMatrix | None:
        return self._contents.matrices.get(key)
