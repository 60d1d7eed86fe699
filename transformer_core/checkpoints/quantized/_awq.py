"""Weights of AWQ: integers of 4 bits, packed along the outputs in an order of their own."""

from typing import Any, Final

import numpy as np

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints.quantized._integers import unpacked_bits
from transformer_core.checkpoints.quantized._matrix import ScaledMatrix
from transformer_core.checkpoints.quantized._scales import FLOATS, GridRows, Scales
from transformer_core.checkpoints.quantized._stored import Contents, StoredTensors, module_of, part_of

_Array = np.ndarray[Any, Any]

_WORDS: Final = ("I32", "U32")
_CODES: Final = ".qweight"
_PER_WORD: Final = 8
# Place in a word of each of eight neighbouring outputs (AutoAWQ's kernels read them in pairs).
_PLACES: Final = (0, 4, 1, 5, 2, 6, 3, 7)


def awq_contents(fields: ConfigFields, source: StoredTensors) -> Contents:
    """Reads checkpoints of ``awq`` in the layout of its ``gemm`` kernels.

    Raises:
        ConfigError: the layout, the bits or the zero points are others.
        CheckpointError: a weight lacks a part, or its parts do not fit each other.
    """
    version = "version" if fields.has("version") else "format"
    if str(fields.values.get(version, "gemm")).lower() != "gemm":
        fields.refuse(version, "gemm, the layout that is read")
    bits = "w_bit" if fields.has("w_bit") else "bits"
    if fields.integer(bits, 4) != 4:
        fields.refuse(bits, "4")
    if not fields.boolean("zero_point", True):
        fields.refuse("zero_point", "true: matrices without zero points are not read")
    name = "q_group_size" if fields.has("q_group_size") else "group_size"
    group = None if fields.values.get(name) == -1 else fields.integer(name, 128)
    contents = Contents()
    for key in source.keys():  # noqa: SIM118
        if key.endswith(_CODES):
            contents.add(f"{module_of(key)}.weight", _matrix(source, module_of(key), group))
    return contents


def _matrix(source: StoredTensors, module: str, group_size: int | None) -> ScaledMatrix:
    """Returns the weight [N, K] of a module."""
    scales = part_of(f"{module}{_CODES}", source, f"{module}.scales", FLOATS)
    codes = part_of(scales, source, f"{module}{_CODES}", _WORDS)
    zeros = part_of(scales, source, f"{module}.qzeros", _WORDS)
    if len(codes.shape) != 2 or 0 in codes.shape:
        codes.refuse(f"has shape {list(codes.shape)}, expected a matrix")
    columns, words = codes.shape
    group = group_size or columns
    groups = -(-columns // group)
    scales.of_shape((groups, words * _PER_WORD))
    zeros.of_shape((groups, words))

    def read(start: int, stop: int) -> _Array:
        return _between(codes.read(), start, stop)

    def read_zeros(start: int, stop: int) -> _Array:
        return _between(zeros.read(), start, stop)

    return ScaledMatrix(
        "awq4",
        (words * _PER_WORD, columns),
        (codes.key, zeros.key, scales.key),
        read,
        Scales(GridRows(scales, (groups, words * _PER_WORD), transposed=True)),
        group,
        read_zeros,
        None,
        (0, 15),
    )


def _between(words: _Array, start: int, stop: int) -> _Array:
    """Returns the integers of outputs ``start`` to ``stop`` of words [R, N / 8], as u8 [outputs, R]."""
    first, last = start // _PER_WORD, -(-stop // _PER_WORD)
    stored = unpacked_bits(words[:, first:last].view(np.uint32), 4)
    ordered = stored.reshape(len(words), -1, _PER_WORD)[:, :, _PLACES].reshape(len(words), -1)
    skipped = first * _PER_WORD
    return np.ascontiguousarray(ordered[:, start - skipped : stop - skipped].T)
