"""Scales and minima of blocks of 32 for matvecs with AVX2: those of a step's blocks in one register.

They are picked out of loads that lie so far apart that each has its number on a lane of its own: a blend with memory
for each block. The compiler makes a load that lies in another one out of that one, so integers are loaded before.
"""

from collections.abc import Sequence
from typing import Final

from lang_core import Encoding
from run_iree.kernels._text import listed

_HALF: Final = 2  # bytes
_PAIRED: Final = 18  # bytes of a block, of which two have their halves in a register of 32 bytes


def block_scales(encoding: Encoding, blocks: int, w: str) -> list[str]:
    """Makes ``%w_scales``, and ``%minima`` of layouts that have them: vector<blocks x f32> of the blocks at ``%at``."""
    layout = encoding.layout
    if layout.exponent:
        return _powers_of_two(encoding, blocks, w)
    if layout.minimum is not None:
        assert (layout.scale, layout.minimum) == (0, _HALF)
        lanes = lanes_of(blocks)
        kind = f"vector<{2 * lanes}xi16>"
        return [
            *picked("both", encoding, 0, 2 * _HALF, blocks, w),
            f"%both_halves = vector.bitcast %both : vector<{lanes}xi32> to {kind}",
            *_widened("w_scales", "both_halves", range(0, 2 * blocks, 2), kind),
            *_widened("minima", "both_halves", range(1, 2 * blocks, 2), kind),
        ]
    if encoding.block_bytes == _PAIRED:
        return _paired(blocks, w)
    return [
        *picked("halves", encoding, layout.scale, _HALF, blocks, w),
        *_widened("w_scales", "halves", range(blocks), _halves(lanes_of(blocks))),
    ]


def picked(name: str, encoding: Encoding, place: int, size: int, blocks: int, w: str) -> list[str]:
    """Makes ``%name`` i16 or i32 [lanes_of(blocks)], lane by lane the ``size`` bytes at a place of each block."""
    lanes = lanes_of(blocks)
    kind, lines, total = f"vector<{lanes}xi{8 * size}>", [], ""
    for block in range(blocks):
        part, last = f"%{name}_part{block}", block == blocks - 1
        lines += [
            f"%{name}_at{block} = arith.addi %at, %c{part_place(encoding, place, size, block)} : index",
            f"%{name}_bytes{block} = vector.load %w[%{name}_at{block}] : {w}, vector<{lanes * size}xi8>",
            f"{part} = vector.bitcast %{name}_bytes{block} : vector<{lanes * size}xi8> to {kind}",
        ]
        if not total:
            total = part
            continue
        made, mask = f"%{name}" if last else f"%{name}_to{block}", [*range(block), *range(lanes + block, 2 * lanes)]
        lines.append(f"{made} = vector.shuffle {total}, {part} {listed(mask)} : {kind}, {kind}")
        total = made
    return lines


def lanes_of(blocks: int) -> int:
    """Returns how many lanes hold a number of each block: a power of two, with anything in those that are left.

    Loads of so many lanes end within a step all the same, for they begin before their block.
    """
    return 1 << (blocks - 1).bit_length()


def part_place(encoding: Encoding, place: int, size: int, block: int) -> int:
    """Returns the first byte of the load that has a block's number on the block's lane."""
    return place + (encoding.block_bytes - size) * block


def _paired(blocks: int, w: str) -> list[str]:
    """Makes ``%w_scales`` of words 0, 9, 18, ..: of each sixteen two, at 0, 2, .. and in the other eight at 1, 3, .."""
    lines, kind = [], "vector<16xi16>"
    for part in range(blocks // 2):
        name = f"%part{part}" if part else "%picked0"
        lines += [
            f"%part_at{part} = arith.addi %at, %c{32 * part} : index",
            f"%part_bytes{part} = vector.load %w[%part_at{part}] : {w}, vector<32xi8>",
            f"{name} = vector.bitcast %part_bytes{part} : vector<32xi8> to {kind}",
        ]
        if part:
            taken = (2 * part, 2 * part + 1, 2 * part + 8, 2 * part + 9)
            mask = listed([lane + 16 * (lane in taken) for lane in range(16)])
            lines.append(f"%picked{part} = vector.shuffle %picked{part - 1}, {name} {mask} : {kind}, {kind}")
    order = [block + 8 * (block % 2) for block in range(blocks)]
    return [*lines, *_widened("w_scales", f"picked{blocks // 2 - 1}", order, kind)]


def scale_numbers(encoding: Encoding, blocks: int) -> list[int]:
    """Returns the index constants that ``block_scales`` needs."""
    layout = encoding.layout
    if encoding.block_bytes == _PAIRED:
        return [*range(0, 16 * blocks, 32)]
    size = _HALF if layout.minimum is None else 2 * _HALF
    return [part_place(encoding, layout.scale, size, block) for block in range(blocks)]


def _widened(name: str, halves: str, order: Sequence[int], kind: str) -> list[str]:
    """Makes ``%name`` f32 of some f16 in words of a type."""
    count = len(order)
    return [
        f"%{name}_words = vector.shuffle %{halves}, %{halves} {listed(order)} : {kind}, {kind}",
        f"%{name}_f16 = vector.bitcast %{name}_words : {_halves(count)} to vector<{count}xf16>",
        f"%{name} = arith.extf %{name}_f16 : vector<{count}xf16> to vector<{count}xf32>",
    ]


def _halves(count: int) -> str:
    return f"vector<{count}xi16>"


def _powers_of_two(encoding: Encoding, blocks: int, w: str) -> list[str]:
    """Makes ``%w_scales``, 2**(e - 128) of each block's byte e.

    The two least, which are subnormal in f32, are 0: a CPU's threads flush them.
    """
    words, halves, given = f"vector<{blocks}xi32>", _halves(blocks), _halves(lanes_of(blocks))
    return [
        *picked("two_bytes", encoding, encoding.layout.scale, _HALF, blocks, w),
        f"%e_mask = arith.constant dense<255> : {words}",
        f"%e_one = arith.constant dense<1> : {words}",
        f"%e_up = arith.constant dense<23> : {words}",
        f"%two_bytes_of = vector.shuffle %two_bytes, %two_bytes {listed(range(blocks))} : {given}, {given}",
        f"%e_words = arith.extui %two_bytes_of : {halves} to {words}",
        f"%e = arith.andi %e_words, %e_mask : {words}",
        f"%e_least = arith.maxui %e, %e_one : {words}",
        f"%e_less = arith.subi %e_least, %e_one : {words}",
        f"%e_bits = arith.shli %e_less, %e_up : {words}",
        f"%w_scales = arith.bitcast %e_bits : {words} to vector<{blocks}xf32>",
    ]
