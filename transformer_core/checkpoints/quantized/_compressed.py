"""Weights of compressed-tensors: packed integers, plain integers and floats, and floats of four bits."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

import numpy as np

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints.quantized._fp8 import float_matrix
from transformer_core.checkpoints.quantized._integers import WORD, columns_between, unpacked_bits, word_count
from transformer_core.checkpoints.quantized._matrix import QuantizedMatrix, ScaledMatrix
from transformer_core.checkpoints.quantized._mxfp4 import E2M1, Mxfp4Matrix
from transformer_core.checkpoints.quantized._scales import (
    EXPONENTS,
    FLOATS,
    SMALL_FLOATS,
    GridRows,
    Scales,
    grid_of,
    group_order,
)
from transformer_core.checkpoints.quantized._schemes import Scheme, Schemes
from transformer_core.checkpoints.quantized._stored import Contents, Part, StoredTensors, module_of, part_of

_Array = np.ndarray[Any, Any]

_WORDS: Final = ("I32", "U32")
_SCALE: Final = ".weight_scale"
_PLAIN: Final = ("I8", *SMALL_FLOATS)
_ACTIVATIONS: Final = (
    ".input_scale",
    ".input_zero_point",
    ".input_global_scale",
    ".output_scale",
    ".output_zero_point",
)


def compressed_contents(fields: ConfigFields, source: StoredTensors) -> Contents:
    """Reads checkpoints of ``compressed-tensors``.

    Raises:
        ConfigError: a scheme is not supported, or says other modules than the tensors do.
        CheckpointError: a weight lacks a part, or its parts do not fit each other.
    """
    schemes = Schemes(fields)
    contents = Contents()
    for key in source.keys():  # noqa: SIM118
        plain = key.endswith(".weight") and source.stored_form(key)[0] in _PLAIN
        if plain or key.endswith(".weight_packed"):
            module = module_of(key)
            scheme = schemes.of(module)
            contents.add(f"{module}.weight", _READERS[scheme.format](source, module, scheme))
    for key in source.keys():  # noqa: SIM118
        if key.endswith(_SCALE) and key not in contents.parts:
            _refuse_scale(Part(source, key, *source.stored_form(key)), module_of(key))
    contents.note_activations(source, _ACTIVATIONS, schemes.quantises_activations)
    return contents


def _refuse_scale(scale: Part, module: str) -> NoReturn:
    """Raises CheckpointError: a scale exists without a quantized weight."""
    key = f"{module}.weight"
    if not scale.source.has(key):
        scale.refuse(f"is a part of a quantized weight, and its other part {key!r} or '{key}_packed' is missing")
    dtype, _ = scale.source.stored_form(key)
    scale.refuse(f"scales {key!r}, which is {dtype} and yet to be quantised, expected compressed weights")


def _packed_integers(source: StoredTensors, module: str, scheme: Scheme) -> QuantizedMatrix:
    """Reads integers of 1 to 8 bits in words of 32 (``pack-quantized``)."""
    scheme.expect(integers=True, bits=range(1, 9))
    scales = part_of(f"{module}.weight_packed", source, module + _SCALE, FLOATS)
    codes = part_of(scales, source, f"{module}.weight_packed", _WORDS)
    rows, columns = shape = _stored_shape(source, module, codes, scales, scheme)
    codes.of_shape((rows, word_count(columns, scheme.bits)))
    grid, group = grid_of(scales, (), rows, columns, scheme.shared)
    zeros = _packed_zeros(source, module, scales, scheme, rows) if not scheme.symmetric else None
    order, parts = None, [codes.key, f"{module}.weight_shape", scales.key]
    if source.has(f"{module}.weight_g_idx"):
        index = part_of(scales, source, f"{module}.weight_g_idx", ("I32", "I64")).of_shape((columns,))
        unset = np.all(index.read() == -1)  # what the library writes if groups follow each other
        order = None if unset else group_order(index, -(-columns // group), group)
        parts.append(index.key)
    middle = 1 << scheme.bits - 1

    def read(start: int, stop: int) -> _Array:
        stored = unpacked_bits(codes.read()[start:stop].view(np.uint32), scheme.bits)
        return stored[:, :columns].astype(np.int16) - middle

    return ScaledMatrix(
        f"int{scheme.bits}",
        shape,
        (*parts, *([f"{module}.weight_zero_point"] if zeros else ())),
        read,
        Scales(grid),
        group,
        zeros,
        order,
        (-middle, middle - 1),
    )


def _stored_shape(source: StoredTensors, module: str, codes: Part, scales: Part, scheme: Scheme) -> tuple[int, int]:
    """Returns the shape that a packed weight has unpacked.

    ``weight_shape``, or if that is 0 the shape derived from other tensors.
    """
    part = part_of(codes, source, f"{module}.weight_shape", ("I64", "I32")).of_shape((2,))
    if len(codes.shape) != 2 or 0 in codes.shape:
        codes.refuse(f"has shape {list(codes.shape)}, expected a matrix")
    rows, columns = (int(size) for size in part.read())
    if (rows, columns) == (0, 0):  # data of a file of which only the header was downloaded
        whole = (
            scales.shape[-1] * scheme.group if scheme.group and scales.shape else codes.shape[1] * WORD // scheme.bits
        )
        return codes.shape[0], whole
    if rows < 1 or columns < 1:
        part.refuse(f"says {rows} x {columns}, expected numbers above 0")
    return rows, columns


def _packed_zeros(
    source: StoredTensors, module: str, scales: Part, scheme: Scheme, rows: int
) -> Callable[[int, int], _Array]:
    """Returns a reader of zero points: as integers of a tensor's, packed along the outputs otherwise."""
    part = part_of(scales, source, f"{module}.weight_zero_point", (*_WORDS, "I8"))
    if scheme.strategy == "tensor":
        return GridRows(part.of_shape(scales.shape), (1, 1), rows=rows, block=rows)
    bits = scheme.bits
    part.of_shape((word_count(rows, bits), scales.shape[-1] if len(scales.shape) == 2 else 1))
    if part.dtype not in _WORDS:
        part.refuse(f"is {part.dtype}, expected {' or '.join(_WORDS)}")

    def read(start: int, stop: int) -> _Array:
        stored = columns_between(part.read().view(np.uint32).T, bits, start, stop)
        return stored.T.astype(np.int16) - (1 << bits - 1)

    return read


def _plain(source: StoredTensors, module: str, scheme: Scheme) -> QuantizedMatrix:
    """Reads weights of a byte each (``naive-``, ``int-`` and ``float-quantized``)."""
    if not scheme.integers:
        scheme.expect(integers=False, bits=(8,))
        return float_matrix(source, f"{module}.weight", module + _SCALE, scheme.shared)
    scheme.expect(integers=True, bits=range(2, 9))
    codes = part_of(f"{module}.weight", source, f"{module}.weight", ("I8",))
    scales = part_of(codes, source, module + _SCALE, FLOATS)
    if len(codes.shape) != 2 or 0 in codes.shape:
        codes.refuse(f"has shape {list(codes.shape)}, expected a matrix")
    grid, group = grid_of(scales, (), *codes.shape, scheme.shared)
    parts, zeros = (codes.key, scales.key), None
    if source.has(f"{module}.weight_zero_point"):
        zero = part_of(codes, source, f"{module}.weight_zero_point", ("I8",)).of_shape(scales.shape)
        zeros, parts = grid.of(zero), (*parts, zero.key)
    elif not scheme.symmetric:
        part_of(codes, source, f"{module}.weight_zero_point", ("I8",))

    def read(start: int, stop: int) -> _Array:
        return codes.read()[start:stop]

    return ScaledMatrix("int8", codes.shape, parts, read, Scales(grid), group, zeros, None, (-128, 127))


def _nvfp4(source: StoredTensors, module: str, scheme: Scheme) -> QuantizedMatrix:
    """Reads floats of four bits in groups of 16, with scales of 8 bits and one of the tensor."""
    scheme.expect(integers=False, bits=(4,))
    codes, columns = _packed_floats(source, module)
    scales = part_of(codes, source, module + _SCALE, ("F8_E4M3",))
    whole = part_of(codes, source, f"{module}.weight_global_scale", FLOATS).of_shape((1,), ())
    grid, group = grid_of(scales, (), codes.shape[0], columns, scheme.shared)

    def read(start: int, stop: int) -> _Array:
        stored = codes.read()[start:stop]
        return E2M1[np.stack([stored & 15, stored >> 4], axis=-1).reshape(stop - start, columns)]

    return ScaledMatrix(
        "nvfp4",
        (codes.shape[0], columns),
        (codes.key, scales.key, whole.key),
        read,
        Scales(grid, divisor=whole),
        group,
    )


def _mxfp4(source: StoredTensors, module: str, scheme: Scheme) -> QuantizedMatrix:
    """Reads floats of four bits in groups of 32 with powers of two."""
    scheme.expect(integers=False, bits=(4,))
    codes, columns = _packed_floats(source, module)
    scales = part_of(codes, source, module + _SCALE, EXPONENTS)
    if columns % 32 or scheme.group != 32:
        codes.refuse(f"has {columns} inputs in groups of {scheme.group}, expected groups of 32")
    return Mxfp4Matrix(codes, scales.of_shape((codes.shape[0], columns // 32)))


def _packed_floats(source: StoredTensors, module: str) -> tuple[Part, int]:
    """Returns the stored floats of four bits, two in a byte, and the number of columns."""
    key = f"{module}.weight_packed"
    codes = part_of(key, source, key, ("U8",))
    if len(codes.shape) != 2 or 0 in codes.shape:
        codes.refuse(f"has shape {list(codes.shape)}, expected a matrix")
    return codes, codes.shape[1] * 2


_READERS: Final[Mapping[str, Callable[[StoredTensors, str, Scheme], QuantizedMatrix]]] = {
    "pack-quantized": _packed_integers,
    "int-quantized": _plain,
    "float-quantized": _plain,
    "naive-quantized": _plain,
    "mxfp8-quantized": _plain,
    "nvfp4-pack-quantized": _nvfp4,
    "mxfp4-pack-quantized": _mxfp4,
}
