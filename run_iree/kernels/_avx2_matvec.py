"""y = W x of one token for CPUs with AVX2, FMA and F16C: the steps along rows of blocks and super-blocks.

Integers of two blocks are multiplied at once, ``vpmaddubsw`` (unsigned by signed) and ``vpmaddwd`` sum them, and a
product with f32 scales follows. Signed bytes are widened to 16 bits, as x of two planes is; of x in one plane their
magnitudes are multiplied with x with their signs.

Steps along rows of super-blocks take 256 columns at a time. As with blocks of 32 a register has integers of two blocks,
or of two parts of one, so that eight sums of products have two scales, which lie in the same places of a register's
halves.
"""

from functools import partial
from typing import Final

from lang_core import BLOCK, Encoding
from lang_core.ops import PLANE_BASE
from run_iree.kernels._avx2_minus import SIXTEENS
from run_iree.kernels._avx2_nibbles import Nibbles, fifth_bits, fifth_numbers, nibble_constants
from run_iree.kernels._avx2_planes import PairedPlanes, has_paired_planes
from run_iree.kernels._avx2_row import BYTES, PAIRS, SUMS, for_steps
from run_iree.kernels._avx2_scales import block_scales, picked, scale_numbers
from run_iree.kernels._avx2_steps import (
    Reading,
    block_sums,
    most_columns,
    row_steps,
    scales_of_x,
    summed,
)
from run_iree.kernels._instruction_sets import byte_dot, pair_dot, with_sign
from run_iree.kernels._lines import Buffer
from run_iree.kernels._packed_matvec import RowSteps, packed_matvec
from run_iree.kernels._packed_row import packed_buffers
from run_iree.kernels._packed_tokens import packed_tokens
from run_iree.kernels._sub_scales import part_minima, part_scales
from run_iree.kernels._super_block import super_block_constants, super_block_numbers
from run_iree.kernels._text import CpuKernel, listed, wanted_workgroups

_BLOCKS: Final = 8
_HALF: Final = BLOCK // 2


def reads_super_blocks(encoding: Encoding) -> bool:
    """Returns whether a layout of super-blocks is one of those that the steps here are for."""
    if encoding.layout.exponent:
        return False
    return _has_short_runs(encoding) or (encoding.layout.table is None and has_paired_planes(encoding))


def super_block_steps(columns: int, planes: int, encoding: Encoding, w: str, at_once: int | None = None) -> RowSteps:
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


NAME: Final = "avx2-matvec"
TOKENS: Final = "avx2-few-tokens"
_TILE: Final = 4  # tokens whose sums registers hold
_LEAST_WORKGROUPS: Final = 16
_ROWS: Final = 32  # rows of a workgroup, if there are enough
_EXACT_BLOCKS: Final = (8, 6)  # of a step whose blocks may be summed exactly, a lane each
_TWICE: Final = 8  # blocks of a step that leave room for each scale in both halves of two registers


def fits_avx2_matvec(columns: int, encoding: Encoding) -> bool:
    """Returns whether there is a kernel for the encoding, and rows are whole steps."""
    reads = reads_super_blocks(encoding) if encoding.block > BLOCK else _reads_blocks(encoding)
    return reads and columns % max(encoding.block, 2 * BLOCK) == 0


def _reads_blocks(encoding: Encoding) -> bool:
    """Returns whether a layout of blocks of 32 is one of those that the steps here are for."""
    first, *others = encoding.layout.planes
    if first.bits == 8:
        return not others and encoding.layout.minimum is None and not encoding.layout.exponent
    return (first.bits, first.span) == (4, 16) and all((plane.bits, plane.span) == (1, 1) for plane in others)


def exact_accumulators(columns: int, encoding: Encoding, planes: int) -> int:
    """Returns how many f32 a row is summed in by kernels that sum each block exactly; 0 if there are none.

    Rows are whole steps of eight blocks, or of six, and x of all of them is prepared at once.
    """
    if encoding.block > BLOCK or not fits_avx2_matvec(columns, encoding):
        return 0
    blocks = _blocks(columns)
    if blocks not in _EXACT_BLOCKS:
        return 0
    steps = avx2_steps(columns, planes, encoding, "", exact_blocks=True)
    return blocks if steps.most is None or steps.most * steps.width >= columns else 0


def avx2_matvec_kernel(
    outputs: int,
    columns: int,
    encoding: Encoding,
    dtype: str,
    planes: int,
    *,
    ahead: int,
    exact_blocks: bool = False,
) -> CpuKernel:
    """Builds q i8 [planes, columns], scale f32, total i32 [columns / 32], w [outputs, bytes]: y [outputs].

    Args:
        outputs: rows of w.
        columns: columns of w; see ``fits_avx2_matvec``.
        encoding: encoding of w.
        dtype: dtype of y.
        planes: planes of x.
        ahead: prefetch distance in bytes.
        exact_blocks: whether blocks are summed exactly (``block_sums``), as they are by ``integers_matmul_kernel``
            with ``exact_accumulators``.
    """
    buffers = packed_buffers(1, outputs, columns, encoding, dtype, planes)
    w = buffers[3]
    steps = avx2_steps(columns, planes, encoding, w.memref, exact_blocks=exact_blocks)
    # Each workgroup has x to arrange, which takes about as long as a row: half as many are faster, of enough rows.
    workgroups = max(_LEAST_WORKGROUPS, min(wanted_workgroups(w.elements // 2), outputs // _ROWS))
    return packed_matvec(NAME, buffers, steps, ahead=ahead, workgroups=workgroups)


def avx2_tokens_kernel(
    sizes: tuple[int, int, int],
    encoding: Encoding,
    dtype: str,
    planes: int,
    *,
    ahead: int,
    exact_blocks: bool = False,
) -> CpuKernel:
    """Builds the kernel of T, N, K for several tokens, with the same bits as the kernel for one."""
    rows, outputs, columns = sizes
    buffers = packed_buffers(rows, outputs, columns, encoding, dtype, planes)
    make = partial(avx2_steps, columns, planes, encoding, buffers[3].memref, exact_blocks=exact_blocks)
    name = f"{TOKENS}.{encoding.name}{'.exact' if exact_blocks else ''}"
    return packed_tokens(name, sizes, buffers, make, tile=_TILE, ahead=ahead)


def avx2_steps(
    columns: int, planes: int, encoding: Encoding, w: str, at_once: int | None = None, *, exact_blocks: bool = False
) -> RowSteps:
    """Returns the steps along rows of a weight of type ``w``; x is prepared for so many at a time."""
    if encoding.block > BLOCK:
        return super_block_steps(columns, planes, encoding, w, at_once)
    make = _byte_steps if encoding.bits == 8 else _nibble_steps
    return make(columns, planes, encoding, w, at_once, exact_blocks)


def _nibble_steps(
    columns: int, planes: int, encoding: Encoding, w: str, at_once: int | None, exact_blocks: bool
) -> RowSteps:
    """Returns the steps along blocks of four bits and more.

    Two blocks are half a step apart, so that their scales lie in the same places of a register's halves.
    """
    blocks, size = _blocks(columns), encoding.block_bytes
    half, first = blocks // 2, encoding.layout.planes[0].at
    nibbles = [
        Nibbles(f"{i}", (size * i + first, size * (i + half) + first), (BLOCK * i, BLOCK * (i + half)), BLOCK // 2)
        for i in range(half)
    ]
    reading = Reading(
        encoding,
        blocks,
        tuple(pair.integers() for pair in nibbles),
        nibble_constants(encoding),
        [
            *(place for pair in nibbles for place in pair.places),
            *scale_numbers(encoding, blocks),
            *fifth_numbers(encoding, blocks),
        ],
        [line for pair in nibbles for line in pair.loaded(w)],
        [*block_scales(encoding, blocks, w), *fifth_bits(encoding, blocks, w)],
        [line for pair in nibbles for line in pair.unpacked(encoding, blocks)],
    )
    return row_steps(columns, planes, reading, at_once, exact_blocks=exact_blocks)


def _byte_steps(
    columns: int, planes: int, encoding: Encoding, w: str, at_once: int | None, exact_blocks: bool
) -> RowSteps:
    """Returns the steps along blocks of signed bytes."""
    blocks, size = _blocks(columns), encoding.block_bytes
    places = [size * block + encoding.layout.planes[0].at for block in range(blocks)]
    before, arranged, kept, loaded, dots = [], [], (), [], []
    most = blocks * BLOCK * at_once if at_once else columns
    q, few = f"memref<{planes * columns}xi8>", f"vector<{blocks}xf32>"
    for block, place in enumerate(places):
        loaded += [
            f"%at{block} = arith.addi %at, %c{place} : index",
            f"%w{block} = vector.load %w[%at{block}] : {w}, {BYTES}",
        ]
    if planes == 1:
        before.append(f"%ones = arith.constant dense<1> : {PAIRS}")
        for block in range(blocks):
            dots += _sizes_times_x(block, q)
    else:
        most = most if at_once else most_columns(columns, blocks * BLOCK, 2)
        kept = (Buffer("words", most, "i16"),)
        words = kept[0].memref
        arranged = for_steps(blocks * BLOCK, _words_of_x(columns, blocks * BLOCK, q, words))
        for block in range(blocks):
            dots += _words_times_x(block, words)
    if exact_blocks:
        scales = [*block_scales(encoding, blocks, w), f"%scales = arith.mulf %w_scales, %x_scales : {few}"]
        sums = block_sums(blocks, blocks, offset=False, minima=False)
    elif planes > 1 and blocks == _TWICE:
        scales = [*picked("halves", encoding, encoding.layout.scale, 2, blocks, w), *_scales_twice(columns)]
        sums = summed(
            [[block % 4] * 4 + [block % 4 + 4] * 4 for block in range(blocks)],
            few,
            "%sum",
            names=[f"%scales{block // 4}" for block in range(blocks)],
        )
    else:
        scales = [*block_scales(encoding, blocks, w), f"%scales = arith.mulf %w_scales, %x_scales : {few}"]
        sums = summed([[block] * 8 for block in range(blocks)], few, "%sum")
    return RowSteps(
        blocks * BLOCK,
        blocks * size,
        [4, blocks, *range(0, blocks * BLOCK, 16), *places, *scale_numbers(encoding, blocks), columns],
        before,
        scales_of_x(columns, blocks),
        [*loaded, *scales, *dots, *sums],
        arranged,
        most // (blocks * BLOCK),
        lanes=blocks if exact_blocks else 16,
        in_turn=exact_blocks,
        kept=kept,
    )


def _scales_twice(columns: int) -> list[str]:
    """Makes ``%scales0`` of four blocks and ``%scales1`` of the next four, each scale once for each half of a register.

    So a block's scale is spread within halves, which takes one cycle and does not need a register for the order.
    """
    few, four, kind = "vector<8xf32>", "vector<4xf32>", f"memref<{columns // BLOCK}xf32>"
    lines = ["%x_next_at = arith.addi %x_scales_at, %c4 : index"]
    for half, place in enumerate(("%x_scales_at", "%x_next_at")):
        order, twice = listed([*range(4 * half, 4 * half + 4)] * 2), listed([*range(4)] * 2)
        lines += [
            f"%halves{half} = vector.shuffle %halves, %halves {order} : vector<8xi16>, vector<8xi16>",
            f"%f16_{half} = vector.bitcast %halves{half} : vector<8xi16> to vector<8xf16>",
            f"%w_scales{half} = arith.extf %f16_{half} : vector<8xf16> to {few}",
            f"%x_four{half} = vector.load %scale[{place}] : {kind}, {four}",
            f"%x_twice{half} = vector.shuffle %x_four{half}, %x_four{half} {twice} : {four}, {four}",
            f"%scales{half} = arith.mulf %w_scales{half}, %x_twice{half} : {few}",
        ]
    return lines


def _sizes_times_x(block: int, q: str) -> list[str]:
    """Makes ``%dot<block>`` of magnitudes and of x with the integers' signs, also of -128."""
    return [
        f"%x_at{block} = arith.addi %x_at, %c{BLOCK * block} : index",
        f"%x{block} = vector.load %q[%x_at{block}] : {q}, {BYTES}",
        f"%size{block} = math.absi %w{block} : {BYTES}",
        f"%signed{block} = {with_sign(f'%x{block}', f'%w{block}')}",
        f"%pairs{block} = {byte_dot(f'%size{block}', f'%signed{block}')}",
        f"%dot{block} = {pair_dot(f'%pairs{block}', '%ones')}",
    ]


def _words_times_x(block: int, words: str) -> list[str]:
    """Makes ``%dot<block>`` of integers that are widened to 16 bits."""
    lines = []
    for side in (0, 1):
        name = f"{block}_{side}"
        half, order = f"vector<{BLOCK // 2}xi8>", listed(range(16 * side, 16 * side + 16))
        lines += [
            f"%x_at{name} = arith.addi %local_at, %c{BLOCK * block + 16 * side} : index",
            f"%x{name} = vector.load %words[%x_at{name}] : {words}, {PAIRS}",
            f"%half{name} = vector.shuffle %w{block}, %w{block} {order} : {BYTES}, {BYTES}",
            f"%wide{name} = arith.extsi %half{name} : {half} to {PAIRS}",
            f"%dot{name} = {pair_dot(f'%wide{name}', f'%x{name}')}",
        ]
    return [*lines, f"%dot{block} = arith.addi %dot{block}_0, %dot{block}_1 : vector<8xi32>"]


def _words_of_x(columns: int, width: int, q: str, words: str) -> list[str]:
    """Makes integers of 16 bits of the two planes of a step's part of x."""
    stored, kind = f"vector<{width}xi8>", f"vector<{width}xi16>"
    lines = [f"%second_at = arith.addi %from, %c{columns} : index"]
    for name, place in (("plane0", "%from"), ("plane1", "%second_at")):
        lines += [
            f"%{name} = vector.load %q[{place}] : {q}, {stored}",
            f"%{name}_wide = arith.extsi %{name} : {stored} to {kind}",
        ]
    return [
        *lines,
        f"%base = arith.constant dense<{PLANE_BASE}> : {kind}",
        f"%upper = arith.muli %plane0_wide, %base : {kind}",
        f"%both = arith.addi %upper, %plane1_wide : {kind}",
        f"vector.store %both, %words[%local] : {words}, {kind}",
    ]


def _blocks(columns: int) -> int:
    """Returns how many blocks a step has."""
    return next(blocks for blocks in (8, 6, 4, 2) if columns % (blocks * BLOCK) == 0)
