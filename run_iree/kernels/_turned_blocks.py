"""Blocks of 32 of sixteen rows of a packed weight, turned.

A step is two blocks, a whole number of words of 32 bits, which are read together with the scales between them. If
integers begin in the middle of a word, the first two bytes and the last two are one: so a block's bytes are turned by
two, and x with them.
"""

from typing import Final

from lang_core import BLOCK, Encoding
from run_iree.kernels._packed_row import unsigned_offset
from run_iree.kernels._text import Buffer
from run_iree.kernels._turned_rows import (
    BYTES,
    QUARTER,
    WORD,
    WORDS,
    TurnedRows,
    mixed_halves,
    row_places,
    turned_f16,
    turned_words,
)

_STEP: Final = 2  # blocks


def fits_turned_blocks(columns: int, encoding: Encoding) -> bool:
    """Returns whether rows are whole steps of blocks with one plane of 8 or 4 bits, scaled by f16."""
    layout = encoding.layout
    one_plane = len(layout.planes) == 1 and layout.table is None and not layout.exponent
    return encoding.block == BLOCK and one_plane and columns % (_STEP * BLOCK) == 0


def turned_blocks(encoding: Encoding, w: Buffer, row_bytes: int) -> TurnedRows:
    """Returns how blocks of sixteen rows are turned."""
    size = _STEP * encoding.block_bytes
    lines = row_places(row_bytes)
    for place in range(0, size, QUARTER):
        # The last words lie in sixteen bytes that others were read with.
        lines += turned_words(w, min(place, size - QUARTER), place)
    before = [f"%flip = arith.constant dense<-128> : {BYTES}"]
    if encoding.bits < 8:
        before = [f"%nibble = arith.constant dense<15> : {BYTES}", f"%four = arith.constant dense<4> : {BYTES}"]
    has_minima = encoding.layout.minimum is not None
    return TurnedRows(
        w,
        row_bytes,
        size,
        [_order(encoding, block) for block in range(_STEP)],
        0 if has_minima else unsigned_offset(encoding),
        has_minima,
        before,
        lines,
        [_of_block(encoding, block) for block in range(_STEP)],
    )


def _plane_bytes(encoding: Encoding) -> int:
    return BLOCK * encoding.layout.planes[0].bits // 8


def _begin(encoding: Encoding, block: int) -> int:
    """Returns the first byte of a block's integers in the step."""
    return encoding.block_bytes * block + encoding.layout.planes[0].at


def _order(encoding: Encoding, block: int) -> list[int]:
    """Returns the columns that bytes of a block's registers belong to."""
    count, turn = _plane_bytes(encoding), _begin(encoding, block) % WORD
    return [run + (byte - turn) % count for run in range(0, BLOCK, count) for byte in range(count)]


def _of_block(encoding: Encoding, block: int) -> list[str]:
    layout, begin = encoding.layout, encoding.block_bytes * block
    lines = _integers(encoding, block) + turned_f16(f"scales{block}", begin + layout.scale)
    return lines + ([] if layout.minimum is None else turned_f16(f"minima{block}", begin + layout.minimum))


def _integers(encoding: Encoding, block: int) -> list[str]:
    """Makes ``%w<block>_<i>`` of the words of a block."""
    lines, begin, size = list[str](), _begin(encoding, block), _plane_bytes(encoding)
    for i in range(size // WORD):
        n, place = f"{block}_{i}", begin - begin % WORD + WORD * i
        mixed = begin % WORD and i == 0
        lines += mixed_halves(f"mixed{block}", place, place + size) if mixed else []
        lines.append(
            f"%stored{n} = vector.bitcast %{f'mixed{block}' if mixed else f'word{place}'} : {WORDS} to {BYTES}"
        )
        if encoding.bits == 8:
            lines.append(f"%w{n} = arith.xori %stored{n}, %flip : {BYTES}")
        else:
            lines += [
                f"%w{n} = arith.andi %stored{n}, %nibble : {BYTES}",
                f"%w{block}_{i + size // WORD} = arith.shrui %stored{n}, %four : {BYTES}",
            ]
    return lines
