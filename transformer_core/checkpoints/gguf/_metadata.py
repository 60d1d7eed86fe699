"""Metadata of GGUF files: typed values by name."""

from typing import Final

import numpy as np
from gguf import GGUFValueType

from lang_core import CheckpointError
from transformer_core.checkpoints.gguf._cursor import REDO, Cursor

Value = int | float | bool | str | list["Value"]
"""Value of a field of a GGUF file's metadata."""

MAX_ELEMENTS: Final = 1 << 24
NUMBERS: Final = {
    GGUFValueType.UINT8: np.dtype("u1"),
    GGUFValueType.INT8: np.dtype("i1"),
    GGUFValueType.UINT16: np.dtype("<u2"),
    GGUFValueType.INT16: np.dtype("<i2"),
    GGUFValueType.UINT32: np.dtype("<u4"),
    GGUFValueType.INT32: np.dtype("<i4"),
    GGUFValueType.FLOAT32: np.dtype("<f4"),
    GGUFValueType.BOOL: np.dtype("u1"),
    GGUFValueType.UINT64: np.dtype("<u8"),
    GGUFValueType.INT64: np.dtype("<i8"),
    GGUFValueType.FLOAT64: np.dtype("<f8"),
}
"""Stored form of each type of number."""
_LEAST_STRING: Final = 8  # the length alone
_LEAST_ARRAY: Final = 12
_DEPTH: Final = 4
_LEAST_FIELD: Final = 8 + 4 + 1


def read_metadata(cursor: Cursor, count: int, types: dict[str, GGUFValueType]) -> dict[str, Value]:
    """Reads ``count`` fields; ``types`` receives their types, of lists those of the elements.

    Raises:
        CheckpointError: a name occurs twice, a type is unknown, or the file is shorter than announced.
    """
    cursor.need(count, _LEAST_FIELD, f"the metadata's {count} fields")
    metadata: dict[str, Value] = {}
    for index in range(count):
        key = cursor.text(f"the name of metadata field {index}")
        if key in metadata:
            raise CheckpointError(f"{cursor.path}: the metadata has the field {key!r} twice: {REDO}")
        what = f"metadata field {key!r}"
        types[key] = _type(cursor, what)
        if types[key] is GGUFValueType.ARRAY:
            types[key], metadata[key] = _array(cursor, what, _DEPTH)
        else:
            metadata[key] = _value(cursor, types[key], what, _DEPTH)
    return metadata


def _type(cursor: Cursor, what: str) -> GGUFValueType:
    number = cursor.number("I", f"the type of {what}")
    try:
        return GGUFValueType(number)
    except ValueError:
        known = ", ".join(f"{kind.value} {kind.name}" for kind in GGUFValueType)
        raise CheckpointError(f"{cursor.path}: {what} has type {number}, known are {known}: {REDO}") from None


def _value(cursor: Cursor, kind: GGUFValueType, what: str, depth: int) -> Value:
    if kind is GGUFValueType.STRING:
        return cursor.text(what)
    if kind is GGUFValueType.ARRAY:
        return _array(cursor, what, depth)[1]
    return _numbers(cursor, kind, 1, what)[0]


def _array(cursor: Cursor, what: str, depth: int) -> tuple[GGUFValueType, list[Value]]:
    """Returns the type of the elements, and the elements."""
    if not depth:
        raise CheckpointError(f"{cursor.path}: {what} has arrays more than {_DEPTH} deep: {REDO}")
    kind = _type(cursor, f"the elements of {what}")
    count = cursor.number("Q", f"the length of {what}")
    if count > MAX_ELEMENTS:
        raise CheckpointError(
            f"{cursor.path}: {what} has {count} elements, expected {MAX_ELEMENTS} at most: the file is damaged: {REDO}"
        )
    if kind in NUMBERS:
        return kind, _numbers(cursor, kind, count, what)
    cursor.need(count, _LEAST_STRING if kind is GGUFValueType.STRING else _LEAST_ARRAY, what)
    return kind, [_value(cursor, kind, what, depth - 1) for _ in range(count)]


def _numbers(cursor: Cursor, kind: GGUFValueType, count: int, what: str) -> list[Value]:
    dtype = NUMBERS[kind]
    array = np.frombuffer(cursor.take(count * dtype.itemsize, what), dtype)
    return (array != 0).tolist() if kind is GGUFValueType.BOOL else array.tolist()
