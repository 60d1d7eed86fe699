"""Weights of 8-bit floats: one scale per tensor, per row, or per block of rows and columns."""

from typing import Any, Final

import numpy as np

from lang_core import CheckpointError
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints.quantized._matrix import QuantizedMatrix, ScaledMatrix, matrix_height
from transformer_core.checkpoints.quantized._scales import (
    EXPONENTS,
    FLOATS,
    SMALL_FLOATS,
    Scales,
    grid_of,
    small_floats,
)
from transformer_core.checkpoints.quantized._stored import Contents, StoredTensors, part_of

_Array = np.ndarray[Any, Any]

_ACTIVATIONS: Final = (".input_scale", ".activation_scale", ".input_scale_ub")


def fp8_contents(fields: ConfigFields, source: StoredTensors) -> Contents:
    """Reads checkpoints of ``fp8`` (DeepSeek's blocks among them) and ``fbgemm_fp8``.

    Raises:
        ConfigError: a field of quantization_config has another form.
        CheckpointError: a weight lacks its scales, or they do not fit it.
    """
    block = _block_of(fields)
    contents = Contents()
    for key in source.keys():  # noqa: SIM118
        if source.stored_form(key)[0] in SMALL_FLOATS and not key.endswith("_scale_inv"):
            contents.add(key, float_matrix(source, key, _scale_key(source, key), block))
    contents.note_activations(source, _ACTIVATIONS, fields.values.get("activation_scheme"))
    return contents


def float_matrix(source: StoredTensors, key: str, scale_key: str, block: tuple[int, int] | None) -> QuantizedMatrix:
    """Returns a weight of 8-bit floats; the scales' shape determines the elements that share one.

    Args:
        source: checkpoint.
        key: key of the stored floats, [.., N, K].
        scale_key: key of the scales.
        block: rows and columns of a block if scales are those of blocks.
    """
    codes = part_of(scale_key, source, key, SMALL_FLOATS)
    part = part_of(codes, source, scale_key, (*FLOATS, *EXPONENTS))
    if len(codes.shape) < 2 or 0 in codes.shape:
        codes.refuse(f"has shape {list(codes.shape)}, expected a matrix")
    grid, group = grid_of(part, codes.shape[:-2], codes.shape[-2], codes.shape[-1], block)
    flat = matrix_height(codes.shape), codes.shape[-1]

    def read(start: int, stop: int) -> _Array:
        return small_floats(codes.dtype, codes.read().reshape(flat)[start:stop])

    return ScaledMatrix("fp8", codes.shape, (key, scale_key), read, Scales(grid), group)


def _block_of(fields: ConfigFields) -> tuple[int, int] | None:
    """Returns ``weight_block_size``; None if scales are those of tensors or rows."""
    if not fields.has("weight_block_size"):
        return None
    height, width = (int(size) for size in fields.numbers("weight_block_size", 2))
    if [height, width] != list(fields.values["weight_block_size"]) or height < 1 or width < 1:
        fields.refuse("weight_block_size", "two whole numbers above 0")
    return height, width


def _scale_key(source: StoredTensors, key: str) -> str:
    """Returns the key of a weight's scales, which has one of two names."""
    names = f"{key}_scale_inv", f"{key}_scale"
    stored = [name for name in names if source.has(name)]
    if len(stored) != 1:
        raise CheckpointError(
            f"{source.origin(key)}: {key!r} is a weight of 8-bit floats with {len(stored)} tensors of scales, expected "
            f"either {names[0]!r} or {names[1]!r}: download the checkpoint again"
        )
    return stored[0]
