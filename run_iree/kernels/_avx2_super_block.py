"""Steps of a matvec with AVX2 along rows of super-blocks: 256 columns at a time.

As with blocks of 32 a register has integers of two blocks, or of two parts of one, so that eight sums of products have
two scales, which lie in the same places of a register's halves.
"""

from typing import Final

from lang_core import BLOCK, Encoding
from run_iree.kernels._avx2_nibbles import Nibbles, nibble_constants
from run_iree.kernels._avx2_row import SUMS, Integers
from run_iree.kernels._avx2_steps import Reading, row_steps
from run_iree.kernels._packed_matvec import Steps
from run_iree.kernels._sub_scales import part_minima, part_scales
from run_iree.kernels._super_block import group_integers, groups, super_block_constants, super_block_numbers
from run_iree.kernels._text import listed

_BLOCKS: Final = 8
# Sixteen scales: those of the first parts of four blocks, then those of the second.
_PARTS: Final = (0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15)


def reads_super_blocks(encoding: Encoding) -> bool:
    """Returns whether a layout of super-blocks is one of those that the steps here are for."""
    layout = encoding.layout
    return not layout.exponent and (layout.table is None or _only_nibbles(encoding))


def super_block_steps(columns: int, planes: int, encoding: Encoding, w: str) -> Steps:
    """Returns the steps along super-blocks, of a weight of type ``w``, for x of so many columns and planes."""
    scales = _scales(encoding, w)
    numbers = super_block_numbers(encoding)
    if _only_nibbles(encoding):
        nibbles = _nibbles(encoding)
        registers = tuple(pair for several in nibbles for pair in _by_sums(encoding, several))
        return row_steps(
            columns,
            planes,
            Reading(
                encoding,
                _BLOCKS,
                registers,
                [*super_block_constants(encoding), *nibble_constants(encoding)],
                [*numbers, *(place for several in nibbles for pair in several for place in pair.places)],
                [line for several in nibbles for pair in several for line in pair.loaded(w)],
                scales,
                [line for several in nibbles for pair in several for line in pair.unpacked(encoding, _BLOCKS)],
            ),
        )
    integers = [Integers(f"w{block}", tuple(range(BLOCK * block, BLOCK * block + BLOCK))) for block in range(_BLOCKS)]
    return row_steps(
        columns,
        planes,
        Reading(
            encoding,
            _BLOCKS,
            tuple((block,) for block in integers),
            super_block_constants(encoding),
            numbers,
            (),
            scales,
            [
                *(line for group in range(groups(encoding.layout)) for line in group_integers(encoding, "", group, w)),
                *(line for block in range(_BLOCKS) for line in _block(block)),
            ],
        ),
    )


def _only_nibbles(encoding: Encoding) -> bool:
    return len(encoding.layout.planes) == 1 and encoding.bits == 4 and encoding.layout.scaled == BLOCK


def _nibbles(encoding: Encoding) -> list[tuple[Nibbles, ...]]:
    """Returns the registers of integers of four bits, those of half a super-block beside those of the other.

    Those of 32 bytes have two for each, whose sums are added up.
    """
    (plane,) = encoding.layout.planes
    half = plane.at + encoding.block // 4
    several = []
    for run in range(encoding.block // plane.run // 2):
        firsts = range(0, plane.span, BLOCK // 2)
        several.append(
            tuple(
                Nibbles(
                    f"{run}_{first}",
                    (plane.at + run * plane.span + first, half + run * plane.span + first),
                    (run * plane.run + first, encoding.block // 2 + run * plane.run + first),
                    plane.span,
                )
                for first in firsts
            )
        )
    return several


def _by_sums(encoding: Encoding, several: tuple[Nibbles, ...]) -> list[tuple[Integers, ...]]:
    """Returns the integers whose products are added up: with spans of 16 low and high ones, else each side's."""
    sides = tuple(zip(*(pair.integers() for pair in several), strict=True))
    return [tuple(integers for side in sides for integers in side)] if len(several) == 1 else list(sides)


def _scales(encoding: Encoding, w: str) -> list[str]:
    """Makes ``%w_scales`` and ``%minima``, of eight blocks, or of sixteen parts in the order of ``_PARTS``."""
    layout = encoding.layout
    if layout.scaled < BLOCK:
        lines = [*part_scales(encoding, "", w, _PARTS), _renamed("w_scales", "scaled", range(16))]
        return (
            lines
            if layout.minimum is None
            else [*lines, *part_minima(encoding, "", w, _PARTS), _renamed("minima", "least", range(16))]
        )
    lines = [*part_scales(encoding, "", w), _renamed("w_scales", "scaled", range(8))]
    return lines if layout.minimum is None else [*lines, _renamed("minima", "scaled", range(8, 16))]


def _renamed(name: str, source: str, lanes: range) -> str:
    return f"%{name} = vector.shuffle %{source}, %{source} {listed(lanes)} : {SUMS}, {SUMS}"


def _block(block: int) -> list[str]:
    """Makes ``%w<block>`` of its half of a chunk."""
    name, order = f"%u_{block // 2}", listed(range(BLOCK * (block % 2), BLOCK * (block % 2) + BLOCK))
    return [f"%w{block} = vector.shuffle {name}, {name} {order} : vector<64xi8>, vector<64xi8>"]
