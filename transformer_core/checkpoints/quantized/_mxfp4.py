"""Weights in MXFP4: blocks of 32 values of four bits with a power of two (OCP Microscaling Formats 1.0)."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from lang_core import LAYOUTS
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints.quantized._integers import store_integers
from transformer_core.checkpoints.quantized._matrix import slabs
from transformer_core.checkpoints.quantized._scales import EXPONENTS, powers_of_two
from transformer_core.checkpoints.quantized._stored import Contents, Part, StoredTensors, part_of

_Array = np.ndarray[Any, Any]

E2M1: Final = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
BLOCK: Final = 32
KIND: Final = "mxfp4_pairs"
"""Name of the format: a byte has neighbours, where a byte of GGUF's MXFP4 has values 16 apart."""
_BLOCKS: Final = "_blocks"
_AT_ONCE: Final = 1 << 18  # elements of an expert that are unpacked together


def mxfp4_contents(fields: ConfigFields, source: StoredTensors) -> Contents:
    """Reads checkpoints of ``mxfp4``, as gpt-oss has them: ``*_blocks`` and ``*_scales`` of stacked experts.

    An expert's matrix is stored output-major there, and unquantised checkpoints have it input-major: so has the weight.

    Raises:
        CheckpointError: a weight lacks its scales, or they do not fit it.
    """
    contents = Contents()
    for key in source.keys():  # noqa: SIM118
        if not key.endswith(_BLOCKS):
            continue
        weight = key.removesuffix(_BLOCKS)
        blocks = part_of(key, source, key, ("U8",))
        scales = part_of(blocks, source, f"{weight}_scales", EXPONENTS)
        if len(blocks.shape) != 4 or blocks.shape[-1] != BLOCK // 2 or 0 in blocks.shape:
            blocks.refuse(f"has shape {list(blocks.shape)}, expected experts, rows, blocks and {BLOCK // 2} bytes")
        scales.of_shape(blocks.shape[:-1])
        contents.add(weight, StackedMxfp4(blocks, scales))
    return contents


@dataclass(frozen=True, slots=True)
class Mxfp4Matrix:
    """Matrix [N, K] in MXFP4. Implements ``PackableMatrix``.

    Attributes:
        blocks: stored values, two in a byte, the earlier one in the low bits.
        scales: stored powers of two, [N, K / 32].
        kind: name of the format.
    """

    blocks: Part
    scales: Part
    kind: str = KIND

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the weight, [N, K]."""
        return self.scales.shape[0], self.scales.shape[1] * BLOCK

    @property
    def parts(self) -> tuple[str, ...]:
        """Stored keys of the weight."""
        return self.blocks.key, self.scales.key

    def unpacked(self, start: int, stop: int) -> _Array:
        """Returns rows, f32 [stop - start, K]."""
        weights = np.empty((stop - start, *self.scales.shape[1:], BLOCK), np.float32)
        for first, last in slabs(start, stop, self.shape[1]):
            weights[first - start : last - start] = unpacked_e2m1(*self._stored(first, last), self.scales)
        return weights.reshape(stop - start, self.shape[1])

    def packed_as(self) -> str | None:
        """Returns the encoding of GGUF, which has the same values in another order within a block."""
        return "mxfp4"

    def packed(self, encoding: str, start: int, stop: int) -> _Array:
        """Returns rows in GGUF's blocks, u8 [stop - start, bytes of a row]."""
        blocks = np.empty((stop - start, *self.scales.shape[1:], LAYOUTS[encoding].bytes), np.uint8)
        for first, last in slabs(start, stop, self.shape[1]):
            blocks[first - start : last - start] = mxfp4_blocks(*self._stored(first, last), self.scales)
        return blocks.reshape(stop - start, blocks.shape[1] * blocks.shape[2])

    def _stored(self, start: int, stop: int) -> tuple[_Array, _Array]:
        """Returns values u8 [rows, K / 32, 16] and exponents u8 [rows, K / 32]."""
        codes = self.blocks.read().reshape(*self.scales.shape, BLOCK // 2)
        return codes[start:stop], self.scales.read()[start:stop]


@dataclass(frozen=True, slots=True)
class StackedMxfp4:
    """Experts [E, K, N] in MXFP4, stored as [E, N, K]. Implements ``QuantizedMatrix``.

    Attributes:
        blocks: stored values, [E, N, K / 32, 16].
        scales: stored powers of two, [E, N, K / 32].
        kind: name of the format.
    """

    blocks: Part
    scales: Part
    kind: str = KIND

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the weight, [E, K, N]."""
        experts, outputs, count, _ = self.blocks.shape
        return experts, count * BLOCK, outputs

    @property
    def parts(self) -> tuple[str, ...]:
        """Stored keys of the weight."""
        return self.blocks.key, self.scales.key

    def unpacked(self, start: int, stop: int) -> _Array:
        """Returns rows of the weight as a matrix [E K, N], f32; of each expert only the blocks that they are of."""
        _, inputs, outputs = self.shape
        weights = np.empty((stop - start, outputs), np.float32)
        done = 0
        while done < stop - start:
            expert, begin = divmod(start + done, inputs)
            end = min(inputs, begin + stop - start - done, begin + max(BLOCK, _AT_ONCE // outputs))
            first, last = begin // BLOCK, -(-end // BLOCK)
            codes = self.blocks.read()[expert, :, first:last]
            values = unpacked_e2m1(codes, self.scales.read()[expert, :, first:last], self.scales)
            columns = values.reshape(outputs, -1)[:, begin - first * BLOCK : end - first * BLOCK]
            weights[done : done + end - begin] = columns.T
            done += end - begin
        return weights


def unpacked_e2m1(codes: _Array, exponents: _Array, scales: Part) -> _Array:
    """Returns the values of bytes u8 [.., 16] times the powers of two [..], f32 [.., 32].

    Raises:
        CheckpointError: a scale is NaN.
    """
    powers = _checked_powers(exponents, scales)
    values = E2M1[np.stack([codes & 15, codes >> 4], axis=-1)].reshape(*codes.shape[:-1], BLOCK)
    with np.errstate(over="ignore"):
        return values * powers[..., np.newaxis]


def mxfp4_blocks(codes: _Array, exponents: _Array, scales: Part) -> _Array:
    """Returns the same weights in GGUF's blocks, u8 [.., 17]: exponent first, neighbours 16 apart in nibbles."""
    _checked_powers(exponents, scales)
    layout = LAYOUTS["mxfp4"]
    blocks = np.empty((codes.size * 2 // BLOCK, layout.bytes), np.uint8)
    blocks[:, layout.scale] = exponents.reshape(-1)
    integers = np.stack([codes & 15, codes >> 4], axis=-1).reshape(-1, BLOCK)
    store_integers(layout, integers, blocks)
    return blocks.reshape(*codes.shape[:-1], layout.bytes)


def _checked_powers(exponents: _Array, scales: Part) -> _Array:
    powers = powers_of_two(exponents)
    if np.isnan(powers).any():
        scales.refuse("has a scale of 255, which is NaN, expected finite ones")
    return powers
