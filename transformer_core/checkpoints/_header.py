"""Headers of safetensors files, parsed and proved consistent before any byte of a tensor is trusted.

The format: 8 bytes of little-endian header length, that many bytes of JSON, then the data. The JSON maps each
key to ``{"dtype", "shape", "data_offsets"}``, offsets counted from the start of the data; the tensors tile the
data without overlap or hole. ``__metadata__`` maps strings to strings.
"""

import math
import os
from typing import Final, NamedTuple

import numpy as np

from lang_core import (
    CheckpointError,
    DType,
    JsonBounds,
    JsonError,
    bf16,
    bool_,
    f16,
    f32,
    f64,
    i8,
    i32,
    i64,
    json_value,
    some_of,
    u8,
)

MAX_HEADER_BYTES: Final = 100_000_000  # the limit of the reference implementation
MAX_RANK: Final = 32
HEADER_BOUNDS: Final = JsonBounds(nbytes=MAX_HEADER_BYTES, depth=16, values=1 << 23)
"""Bounds of the JSON of a header or an index, which has about 9 commas and brackets per tensor."""

_MAX_BYTES: Final = 2**63 - 1

# Bits per element of every dtype of the format: the offsets of all tensors are checked, usable or not.
BITS: Final = {
    "BOOL": 8, "U8": 8, "I8": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "I64": 64, "U64": 64, "F64": 64, "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E4M3": 8, "F8_E5M2": 8,
    "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
}  # fmt: skip

DTYPES: Final[dict[str, DType]] = {
    "F32": f32, "F16": f16, "BF16": bf16, "F64": f64, "I8": i8, "U8": u8, "I32": i32, "I64": i64, "BOOL": bool_,
}  # fmt: skip
"""The dtypes that can be read, by their names in the format."""

STORED_DTYPES: Final[dict[str, np.dtype]] = {name: dtype.numpy for name, dtype in DTYPES.items()} | {
    "I16": np.dtype(np.int16), "U16": np.dtype(np.uint16), "U32": np.dtype(np.uint32), "U64": np.dtype(np.uint64),
    "F8_E4M3": np.dtype(np.uint8), "F8_E5M2": np.dtype(np.uint8), "F8_E8M0": np.dtype(np.uint8),
}  # fmt: skip
"""The dtypes in which stored elements can be viewed; of 8-bit floats these are the bytes."""

_REDO: Final = "download or convert the file again"


class HeaderEntry(NamedTuple):
    """Tensor of a file.

    Attributes:
        dtype: name of the dtype in the format, e.g. ``"BF16"``.
        shape: dimensions.
        begin: first byte, counted from the start of the file.
        nbytes: number of bytes.
    """

    dtype: str
    shape: tuple[int, ...]
    begin: int
    nbytes: int


class Header(NamedTuple):
    """Tensors of a file in the order of their data, and the file's metadata."""

    entries: dict[str, HeaderEntry]
    metadata: dict[str, str]


def parse_json(text: bytes, path: str, what: str) -> dict[str, object]:
    """Parses a JSON object.

    Args:
        text: UTF-8 bytes.
        path: path of the file, for messages.
        what: name of the text in messages, e.g. ``"header"``.

    Raises:
        CheckpointError: the text is not JSON, not an object, or has a key twice.
    """
    try:
        value = json_value(text, HEADER_BOUNDS, nonfinite=True, unique=True)
    except JsonError as error:
        raise CheckpointError(f"{path}: the {what} is not JSON ({error}): {_REDO}") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: the {what} is a JSON {type(value).__name__}, expected an object: {_REDO}")
    return value


def read_header(descriptor: int, path: str) -> Header:
    """Reads and validates the header of an open file.

    Args:
        descriptor: descriptor of the open file.
        path: path of the file, for messages.

    Raises:
        CheckpointError: the file is not a consistent safetensors file; names the file, the key, the actual and the
            expected value.
        OSError: the file cannot be read.
    """
    size = os.fstat(descriptor).st_size
    if size == 0:
        raise CheckpointError(f"{path}: the file is empty, expected a safetensors file: {_REDO}")
    if size < 8:
        raise CheckpointError(f"{path}: truncated: {size} bytes, a safetensors file has 8 or more: {_REDO}")
    length = int.from_bytes(os.pread(descriptor, 8, 0), "little")
    if length > MAX_HEADER_BYTES:
        raise CheckpointError(
            f"{path}: the header's length is given as {length} bytes, allowed are {MAX_HEADER_BYTES}: "
            f"this is not a safetensors file, or it is damaged: {_REDO}"
        )
    if 8 + length > size:
        raise CheckpointError(
            f"{path}: truncated: the header's length is given as {length} bytes, {size - 8} are there: {_REDO}"
        )
    fields = parse_json(os.pread(descriptor, length, 8), path, "header")
    metadata = _metadata(fields.pop("__metadata__", {}), path)
    data = 8 + length
    entries = {key: _entry(key, field, data, path) for key, field in fields.items()}
    return Header(_tiled(entries, data, size, path), metadata)


def _metadata(field: object, path: str) -> dict[str, str]:
    if not isinstance(field, dict):
        raise CheckpointError(
            f"{path}: __metadata__ is a {type(field).__name__}, expected an object of strings: {_REDO}"
        )
    for key, value in field.items():
        if not isinstance(value, str):
            raise CheckpointError(f"{path}: __metadata__[{key!r}] is {value!r:.80}, expected a string: {_REDO}")
    return field


def _is_int(value: object) -> bool:
    return type(value) is int  # a JSON true is an int to isinstance


def _entry(key: str, field: object, data: int, path: str) -> HeaderEntry:
    where = f"{path}: tensor {key!r}"
    if not isinstance(field, dict) or not {"dtype", "shape", "data_offsets"} <= field.keys():
        raise CheckpointError(f"{where}: found {field!r:.80}, expected dtype, shape and data_offsets: {_REDO}")
    try:
        key.encode()
    except UnicodeEncodeError:
        raise CheckpointError(f"{where}: the key is not valid Unicode: {_REDO}") from None
    dtype, shape, offsets = field["dtype"], field["shape"], field["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS:
        raise CheckpointError(f"{where}: unknown dtype {dtype!r:.80}, known are {some_of(str(dtype), BITS)}")
    bits = BITS[dtype]
    dims = _shape(shape, bits, where)
    if not (isinstance(offsets, list) and len(offsets) == 2 and all(map(_is_int, offsets))):
        raise CheckpointError(f"{where}: data_offsets are {offsets!r:.80}, expected two integers: {_REDO}")
    begin, end = offsets
    if not 0 <= begin <= end <= _MAX_BYTES:
        raise CheckpointError(f"{where}: data_offsets {offsets} are not a range of bytes 0 <= begin <= end: {_REDO}")
    wanted, rest = divmod(math.prod(dims) * bits, 8)
    if rest or end - begin != wanted:
        raise CheckpointError(
            f"{where}: data_offsets {offsets} span {end - begin} bytes, "
            f"{dtype} of shape {list(dims)} needs {wanted}: {_REDO}"
        )
    return HeaderEntry(dtype, dims, data + begin, end - begin)


def _shape(shape: object, bits: int, where: str) -> tuple[int, ...]:
    if not isinstance(shape, list) or not all(_is_int(dim) and dim >= 0 for dim in shape):
        raise CheckpointError(f"{where}: shape {shape!r:.80}, expected a list of integers of 0 or more: {_REDO}")
    # Zeros count as ones: a shape whose other dimensions overflow cannot be held by an array either.
    if len(shape) > MAX_RANK or math.prod(max(dim, 1) for dim in shape) * bits // 8 > _MAX_BYTES:
        raise CheckpointError(f"{where}: shape {shape!r:.80} is beyond any tensor's (rank {len(shape)}): {_REDO}")
    return tuple(shape)


def _tiled(entries: dict[str, HeaderEntry], data: int, size: int, path: str) -> dict[str, HeaderEntry]:
    """Returns the entries in the order of their data, after checking that they tile it."""
    ordered = sorted(entries.items(), key=lambda item: (item[1].begin, item[1].nbytes))
    stop, before = data, ""
    for key, entry in ordered:
        if entry.begin != stop:
            relation = "overlaps" if entry.begin < stop else "leaves a hole after"
            neighbour = f"tensor {before!r}" if before else "the start of the data"
            raise CheckpointError(
                f"{path}: tensor {key!r} begins at data byte {entry.begin - data} and {relation} {neighbour}, "
                f"expected {stop - data}: {_REDO}"
            )
        stop, before = entry.begin + entry.nbytes, key
    if stop != size:
        state = "truncated" if stop > size else "followed by bytes that no tensor owns"
        last = f"tensor {before!r} ends" if before else "the header ends"
        raise CheckpointError(f"{path}: {last} at byte {stop}, the file has {size}: {state}: {_REDO}")
    return dict(ordered)
