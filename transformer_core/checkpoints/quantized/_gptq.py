"""Weights of GPTQ: integers of 2, 3, 4 or 8 bits, packed along the inputs; every matrix is stored input-major."""

from typing import Any, Final

import numpy as np

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints.quantized._integers import WORD, columns_between, unpacked_bits, word_count
from transformer_core.checkpoints.quantized._matrix import ScaledMatrix
from transformer_core.checkpoints.quantized._scales import FLOATS, GridRows, Scales, group_order
from transformer_core.checkpoints.quantized._stored import Contents, Part, StoredTensors, module_of, part_of

_Array = np.ndarray[Any, Any]

WORDS: Final = ("I32", "U32")
_BITS: Final = (2, 3, 4, 8)
# Number that is added to stored zero points. The first format stores one less.
_ADDED: Final = {"gptq": 1, "gptq_v2": 0}
_CODES: Final = ".qweight"


def gptq_contents(fields: ConfigFields, source: StoredTensors) -> Contents:
    """Reads checkpoints of ``gptq``.

    Bits and groups of a matrix are those of its tensors, since some checkpoints have others in some layers.

    Raises:
        ConfigError: the format is not one of those that are read.
        CheckpointError: a weight lacks a part, or its parts do not fit each other.
    """
    name = "checkpoint_format" if fields.has("checkpoint_format") else "format"
    added = _ADDED[fields.choice(name, _ADDED, "gptq")]
    bits = fields.integer("bits")
    if bits not in _BITS:
        fields.refuse("bits", f"one of {', '.join(map(str, _BITS))}")
    group = None if fields.values.get("group_size") == -1 else fields.integer("group_size", 128)
    contents = Contents()
    for key in source.keys():  # noqa: SIM118
        if key.endswith(_CODES):
            contents.add(f"{module_of(key)}.weight", _matrix(source, module_of(key), group, bits, added))
            bias = f"{module_of(key)}.bias"
            if source.has(bias) and not source.read(bias).any():  # some writers give every matrix a bias
                contents.zero_biases.append(bias)
    return contents


def _bits_of(zeros: Part, rows: int, usual: int) -> int:
    """Returns the bits of integers of which so many words hold those of a row: the usual ones, if these fit."""
    bits = next((bits for bits in (usual, *_BITS) if word_count(rows, bits) == zeros.shape[1]), None)
    if bits is None:
        known = ", ".join(map(str, _BITS))
        zeros.refuse(f"has {zeros.shape[1]} words for {rows} outputs, which no integers of {known} bits fill")
    return bits


def _matrix(source: StoredTensors, module: str, group_size: int | None, usual: int, added: int) -> ScaledMatrix:
    """Returns the weight [N, K] of a module."""
    scales = part_of(f"{module}{_CODES}", source, f"{module}.scales", FLOATS)
    codes = part_of(scales, source, f"{module}{_CODES}", WORDS)
    zeros = part_of(scales, source, f"{module}.qzeros", WORDS)
    if {len(part.shape) for part in (codes, scales, zeros)} != {2} or 0 in (*codes.shape, *scales.shape):
        codes.refuse(
            f"has shape {list(codes.shape)}, its scales {list(scales.shape)}, its zero points "
            f"{list(zeros.shape)}, expected matrices"
        )
    groups, rows = scales.shape
    bits = _bits_of(zeros, rows, usual)
    columns = codes.shape[0] * WORD // bits
    index = None
    if source.has(f"{module}.g_idx"):
        index = part_of(scales, source, f"{module}.g_idx", ("I32", "I64"))
        columns = index.shape[0] if len(index.shape) == 1 else 0
    codes.of_shape((word_count(columns, bits), rows))
    zeros.of_shape((groups, word_count(rows, bits)))
    parts = (codes.key, zeros.key, scales.key)
    group = group_size or columns
    order = None
    if index is not None:
        if -(-columns // group) != groups:
            group = -(-columns // groups)  # a matrix of other groups than most
        order, parts = group_order(index, groups, group), (*parts, index.key)
    if order is None and -(-columns // group) != groups:
        scales.refuse(f"has {groups} groups, expected {-(-columns // group)} of {group} of the {columns} inputs")

    def read(start: int, stop: int) -> _Array:
        return unpacked_bits(codes.read()[:, start:stop].view(np.uint32).T, bits)[:, :columns]

    def read_zeros(start: int, stop: int) -> _Array:
        return columns_between(zeros.read().view(np.uint32), bits, start, stop).T.astype(np.int16) + added

    return ScaledMatrix(
        f"gptq{bits}",
        (rows, columns),
        parts,
        read,
        Scales(GridRows(scales, (groups, rows), transposed=True)),
        group,
        read_zeros,
        order,
        (0, (1 << bits) - 1),
    )
