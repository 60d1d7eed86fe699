"""Weights of a model, some of them packed in blocks: as the checkpoint has them, or quantized as they are read."""

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from lang_core import (
    CheckpointError,
    Encoding,
    InputError,
    PackedRows,
    StoredBytes,
    TensorSpec,
    WeightSource,
    any_of,
    check_rows,
    f32,
    matrix_rows_by,
    matrix_rows_of,
    quantizable,
)

_ELEMENTS_AT_ONCE: Final = 1 << 20  # of a weight that is being quantized, held in f32


class PackedWeights:
    """Weights with packed parameters as i8 [.., bytes of a row]. Implements ``lang_core.WeightSource``.

    Rows that the source has packed in the same encoding are given byte for byte; others are quantized, a few at a time.

    Args:
        source: weights of the model, under the model's names.
        encodings: encoding of each packed parameter, by name.
        packed: parameters [.., bytes of a row] that are packed already, i8 in their encodings, by name.
    """

    def __init__(
        self,
        source: WeightSource,
        encodings: Mapping[str, Encoding],
        packed: Mapping[str, np.ndarray] = MappingProxyType({}),
    ) -> None:
        self._source: Final = source
        self._encodings: Final = encodings
        self._ready: Final = packed

    def keys(self) -> Iterator[str]:
        """Yields the keys of the source."""
        return self._source.keys()

    def has(self, key: str) -> bool:
        """Returns whether the source has a key."""
        return self._source.has(key)

    def spec(self, key: str) -> TensorSpec:
        """Returns the spec of the packed array, or the source's spec."""
        spec, encoding = self._source.spec(key), self._encodings.get(key)
        return spec if encoding is None else encoding.packed(spec)

    def unpacked_spec(self, key: str) -> TensorSpec:
        """Returns the spec of the unpacked weight: f32 if it is packed, else the source's spec."""
        spec = self._source.spec(key)
        return TensorSpec(spec.shape, f32) if key in self._encodings else spec

    def encoding(self, key: str) -> str | None:
        """Returns the source's encoding; None for parameters that are packed here."""
        return None if key in self._encodings else self._source.encoding(key)

    def stored_encoding(self, key: str) -> str | None:
        """Returns the encoding that the source stores a tensor in; None if it is not packed."""
        return self._source.encoding(key)

    def stored_bytes(self, key: str) -> int | None:
        """Returns the bytes that the source stores of a tensor; None if they are not known."""
        return self._source.stored_bytes(key) if isinstance(self._source, StoredBytes) else None

    def packing(self, key: str) -> Encoding | None:
        """Returns the encoding that a parameter is packed in; None if it is not."""
        return self._encodings.get(key)

    def kept(self, key: str) -> bool:
        """Returns whether a parameter has the source's bytes."""
        encoding = self._encodings.get(key)
        return encoding is not None and self._packed_in_source(key, encoding) is not None

    def read(self, key: str) -> np.ndarray:
        """Reads the whole tensor, of its spec's shape: of a packed one its bytes."""
        return self.read_rows(key, 0, self.spec(key).shape[0]) if key in self._encodings else self._source.read(key)

    def read_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Reads rows [stop - start, ..] of the first axis.

        Raises:
            InputError: a weight cannot be quantized, because it is not finite or too large for f16 scales.
            CheckpointError: a block of the source has a scale that is NaN.
        """
        encoding = self._encodings.get(key)
        if encoding is None:
            return self._source.read_rows(key, start, stop)
        shape = self.spec(key).shape
        check_rows(shape, start, stop, key, self.origin(key))
        packed = self._packed_in_source(key, encoding)
        if packed is not None:
            rows = packed.read_packed_rows(key, start, stop).view(np.int8)
            self._check_scales(key, encoding, start, rows)
            return rows
        if key in self._ready:
            return np.asarray(self._ready[key][start:stop])
        height = math.prod(shape[1:-1])
        return self._quantised(key, encoding, start * height, stop * height).reshape(stop - start, *shape[1:])

    def read_matrix_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Reads rows [stop - start, columns] of a tensor as a matrix, as ``MatrixRows``.

        Raises:
            InputError: nothing packs this encoding, or an element is not finite.
        """
        encoding = self._encodings.get(key)
        if encoding is None:
            return matrix_rows_of(self._source, key, start, stop)
        if self._packed_in_source(key, encoding) is None and key not in self._ready:
            return self._quantised(key, encoding, start, stop)
        return matrix_rows_by(self.read_rows, key, self.spec(key).shape, start, stop)

    def origin(self, key: str) -> str:
        """Returns the source's origin of a key."""
        return self._source.origin(key)

    def _quantised(self, key: str, encoding: Encoding, start: int, stop: int) -> np.ndarray:
        """Reads and quantizes rows of a tensor seen as a matrix, holding only some of them in f32 at a time."""
        quantizer = encoding.quantizer
        if quantizer is None:
            stored = self.stored_encoding(key)
            raise InputError(
                f"parameter {key!r}: {encoding.name} is wanted and {self.origin(key)} has it {stored or 'unpacked'}: "
                f"nothing here quantises to {encoding.name}, only to {any_of(quantizable())}"
            )
        made = np.empty((stop - start, self.spec(key).shape[-1]), np.int8)
        rows = max(1, _ELEMENTS_AT_ONCE // self._source.spec(key).shape[-1])
        for first in range(start, stop, rows):
            last = min(stop, first + rows)
            floats = self._floats(key, first, last)
            self._check_range(key, encoding, quantizer.largest, first, floats)
            made[first - start : last - start] = encoding.pack(floats)
            del floats  # before the next rows are read
        return made

    def _floats(self, key: str, start: int, stop: int) -> np.ndarray:
        """Reads rows of a matrix in f32; an f64 that becomes infinite is reported by ``_check_range``."""
        with np.errstate(over="ignore"):
            if self._source.spec(key).ndim == 2:
                return self._source.read_rows(key, start, stop).astype(np.float32, copy=False)
            return matrix_rows_of(self._source, key, start, stop).astype(np.float32, copy=False)

    def _check_range(self, key: str, encoding: Encoding, largest: float, first: int, rows: np.ndarray) -> None:
        if rows.max() <= largest and rows.min() >= -largest:  # both are false for NaN
            return
        row, column = (int(place) for place in np.argwhere(~(np.abs(rows) <= largest))[0])
        place = np.unravel_index(first + row, self._source.spec(key).shape[:-1])
        raise InputError(
            f"parameter {key!r}: element {[*map(int, place), column]} in {self.origin(key)} is {rows[row, column]:g}, "
            f"which {encoding.name} has no block for (the largest is {largest:g}): export without `quantize`"
        )

    def _check_scales(self, key: str, encoding: Encoding, start: int, rows: np.ndarray) -> None:
        damaged = encoding.nonfinite(rows)
        if damaged.any():
            first, *places = (int(place) for place in np.argwhere(damaged)[0])
            raise CheckpointError(
                f"parameter {key!r}: block {[start + first, *places]} of {encoding.name} in {self.origin(key)} has a "
                "scale that is no finite number: the file is damaged: download or convert it again"
            )

    def _packed_in_source(self, key: str, encoding: Encoding) -> PackedRows | None:
        source = self._source
        return source if isinstance(source, PackedRows) and source.packed_as(key) == encoding.name else None


class DequantizedWeights:
    """The same weights with packed ones unpacked to f32 exactly: the reference of packed arithmetic.

    Args:
        source: weights, some of them packed.
    """

    def __init__(self, source: PackedWeights) -> None:
        self._source: Final = source

    def keys(self) -> Iterator[str]:
        """Yields the keys of the source."""
        return self._source.keys()

    def has(self, key: str) -> bool:
        """Returns whether the source has a key."""
        return self._source.has(key)

    def spec(self, key: str) -> TensorSpec:
        """Returns the spec of the weight: f32 if it is packed."""
        return self._source.unpacked_spec(key)

    def encoding(self, key: str) -> str | None:
        """Returns the encoding that a parameter is packed in, here or in the source."""
        encoding = self._source.packing(key)
        return self._source.encoding(key) if encoding is None else encoding.name

    def read(self, key: str) -> np.ndarray:
        """Reads the whole tensor, of its spec's shape."""
        encoding, stored = self._source.packing(key), self._source.read(key)
        return stored if encoding is None else encoding.unpacked(stored)

    def read_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Reads rows [stop - start, ..] of the first axis."""
        encoding, rows = self._source.packing(key), self._source.read_rows(key, start, stop)
        return rows if encoding is None else encoding.unpacked(rows)

    def origin(self, key: str) -> str:
        """Returns the source's origin of a key."""
        return self._source.origin(key)
