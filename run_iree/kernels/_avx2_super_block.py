"""Steps of a matvec with AVX2 along rows of super-blocks: 256 columns at a time.

As with blocks of 32 a register has integers of two blocks, or of two parts of one, so that eight sums of products have
two scales, which lie in the same places of a register's halves.
"""

from typing import Final

from lang_core import BLOCK, Encoding
from run_iree.kernels._avx2_minus import SIXTEENS
from run_iree.kernels._avx2_nibbles import Nibbles, nibble_constants
from run_iree.kernels._avx2_planes import PairedPlanes, has_paired_planes
from run_iree.kernels._avx2_row import SUMS
from run_iree.kernels._avx2_steps import Reading, row_steps
from run_iree.kernels._packed_matvec import Steps
from run_iree.kernels._sub_scales import part_minima, part_scales
from run_iree.kernels._super_block import super_block_constants, super_block_numbers
from run_iree.kernels._text import listed

_BLOCKS: Final = 8
_HALF: Final = BLOCK // 2


def reads_super_blocks(encoding: Encoding) -> bool:
    """Returns whether a layout of super-blocks is one of those that the steps here are for."""
    if encoding.layout.exponent:
        return False
    return _has_short_runs(encoding) or (encoding.layout.table is None and has_paired_planes(encoding))


def super_block_steps(columns: int, planes: int, encoding: Encoding, w: str, at_once: int | None = None) -> Steps:
    """Returns the steps along super-blocks, of a weight of type ``w``, for x of so many columns and planes."""
    make = _short_runs if _has_short_runs(encoding) else _paired_planes
    return row_steps(columns, planes, make(encoding, w), at_once)


def _paired_planes(encoding: Encoding, w: str) -> Reading:
    planes = PairedPlanes(encoding)
    return Reading(
        encoding,
        _BLOCKS,
        planes.registers(),
        [*super_block_constants(encoding), *planes.constants()],
        [*super_block_numbers(encoding), *planes.numbers()],
        planes.loaded(w),
        _scales(encoding, w),
        planes.unpacked(),
    )


def _has_short_runs(encoding: Encoding) -> bool:
    """Returns whether sixteen bytes hold a block: low integers and high ones have the same scale."""
    planes = [(plane.bits, plane.span) for plane in encoding.layout.planes]
    return planes == [(4, _HALF)] and encoding.layout.scaled == BLOCK


def _short_runs(encoding: Encoding, w: str) -> Reading:
    first = encoding.layout.planes[0].at
    nibbles = [
        Nibbles(
            f"{i}",
            (first + _HALF * i, first + _HALF * (i + _BLOCKS // 2)),
            (BLOCK * i, BLOCK * (i + _BLOCKS // 2)),
            _HALF,
        )
        for i in range(_BLOCKS // 2)
    ]
    return Reading(
        encoding,
        _BLOCKS,
        tuple(pair.integers() for pair in nibbles),
        [*super_block_constants(encoding), *nibble_constants(encoding)],
        [*super_block_numbers(encoding), *(place for pair in nibbles for place in pair.places)],
        [line for pair in nibbles for line in pair.loaded(w)],
        _scales(encoding, w),
        [line for pair in nibbles for line in pair.unpacked(encoding, _BLOCKS)],
    )


def _scales(encoding: Encoding, w: str) -> list[str]:
    """Makes ``%w_scales`` and ``%minima``, of eight blocks, or of sixteen parts in the order of ``SIXTEENS``."""
    layout = encoding.layout
    sixteens = layout.scaled < BLOCK
    lines = [
        *part_scales(encoding, "", w, SIXTEENS if sixteens else range(16)),
        _lanes("w_scales", "scaled", range(16 if sixteens else 8)),
    ]
    if layout.minimum is None:
        return lines
    if sixteens:
        return [*lines, *part_minima(encoding, "", w, SIXTEENS), _lanes("minima", "least", range(16))]
    return [*lines, _lanes("minima", "scaled", range(8, 16))]


def _lanes(name: str, source: str, lanes: range) -> str:
    return f"%{name} = vector.shuffle %{source}, %{source} {listed(lanes)} : {SUMS}, {SUMS}"
