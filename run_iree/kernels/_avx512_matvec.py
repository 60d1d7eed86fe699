"""y = W x of one token for CPUs with AVX-512 (F, BW, VL), with or without VNNI: the steps along a row.

Integers of x and of the weights are words of 16 bits. ``vpmaddwd`` multiplies 32 of them and sums pairs; with VNNI the
compiler makes ``vpdpwssd`` of it and the addition after it. The work per weight counts: 40 instructions for eight
blocks of Q4_0. ``_word_registers.py`` reads the weights, ``_x_words.py`` puts x into their order.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from lang_core import BLOCK, BlockLayout, Encoding
from run_iree.kernels._instruction_sets import scaled_by_power, word_dot
from run_iree.kernels._packed_matvec import RowSteps, packed_matvec
from run_iree.kernels._packed_row import packed_buffers
from run_iree.kernels._packed_tokens import packed_tokens
from run_iree.kernels._sub_scales import part_minima, part_scales
from run_iree.kernels._super_block import super_block_constants, super_block_numbers
from run_iree.kernels._text import CpuKernel, listed, wanted_workgroups
from run_iree.kernels._word_registers import Register, StepLoads, integer_words, step_blocks, step_registers
from run_iree.kernels._x_words import XWords

NAME: Final = "avx512-matvec"
TOKENS: Final = "avx512-few-tokens"
_TILE: Final = 8  # tokens whose sums registers hold
_SUMS: Final = "vector<16xf32>"
_BOTH: Final = "vector<32xf32>"
_TOTALS: Final = "vector<16xi32>"


def fits_avx512_matvec(columns: int, encoding: Encoding) -> bool:
    """Returns whether rows of so many columns have a whole step."""
    return columns >= step_blocks(encoding.layout, columns) * encoding.block


def avx512_matvec_kernel(
    outputs: int, columns: int, encoding: Encoding, dtype: str, planes: int, *, ahead: int
) -> CpuKernel:
    """Builds q i8 [planes, columns], scale f32, total i32 [columns / 32], w [outputs, bytes]: y [outputs].

    Args:
        outputs: rows of w.
        columns: columns of w; see ``fits_avx512_matvec``.
        encoding: encoding of w.
        dtype: dtype of y.
        planes: planes of q: one, or a high and a low one.
        ahead: prefetch distance in bytes; 0 for none.
    """
    buffers = packed_buffers(1, outputs, columns, encoding, dtype, planes)
    steps = word_steps(columns, planes, encoding, buffers[3].memref)
    # Each workgroup has x to arrange: half as many are faster.
    workgroups = wanted_workgroups(buffers[3].elements // 2)
    return packed_matvec(NAME, buffers, steps, ahead=ahead, workgroups=workgroups)


def avx512_tokens_kernel(
    sizes: tuple[int, int, int], encoding: Encoding, dtype: str, planes: int, *, ahead: int
) -> CpuKernel:
    """Builds the kernel of T, N, K for several tokens, with the same bits as the kernel for one."""
    rows, outputs, columns = sizes
    buffers = packed_buffers(rows, outputs, columns, encoding, dtype, planes)
    make = partial(word_steps, columns, planes, encoding, buffers[3].memref)
    return packed_tokens(f"{TOKENS}.{encoding.name}", sizes, buffers, make, tile=_TILE, ahead=ahead)


def word_steps(columns: int, planes: int, encoding: Encoding, w: str, at_once: int | None = None) -> RowSteps:
    """Returns the steps along rows of a weight of type ``w``: super-blocks, or four blocks of 32 at a time.

    Each group of registers is summed before it is scaled; the scale of a lane is that of its part, times that of x. Two
    sums take the scaled values alternately, so a step does not wait for all of the step before. ``at_once`` is how many
    steps' x is prepared at a time, by default as many as the stack takes.
    """
    layout, blocks = encoding.layout, step_blocks(encoding.layout, columns)
    loads, groups = StepLoads.of(layout, blocks, w), step_registers(layout, blocks)
    x = XWords(columns, planes, layout, groups, at_once)
    # Integers are loaded ahead of scales: of a load that lies in an earlier one, the compiler makes shifts of that one.
    of_row = [line for g, group in enumerate(groups) for line in _group_dot(layout, g, group, loads)]
    of_row += _block_scales(layout, blocks, loads) if layout.sub_scales is None else _part_scales(encoding, w)
    sums = ["%sum0", "%sum1"]
    for i in range(2):
        of_row.append(f"{sums[i]} = vector.shuffle %sum, %sum {listed(range(16 * i, 16 * i + 16))} : {_BOTH}, {_BOTH}")
    if x.has_less:
        of_row += _less(layout, x.lanes, sums[-1])
        sums[-1] = "%less"
    for g, group in enumerate(groups):
        of_row += _scaled(g, group[0].parts(layout.scaled), x.lanes, sums[g % 2])
        sums[g % 2] = f"%scaled{g}"
    of_row.append(f"%next = vector.shuffle {sums[0]}, {sums[1]} {listed(range(32))} : {_SUMS}, {_SUMS}")
    before = [] if layout.sub_scales is None else super_block_constants(encoding)
    numbers = [*loads.numbers, *x.numbers, *(super_block_numbers(encoding) if layout.sub_scales is not None else ())]
    return RowSteps(x.width, loads.size, numbers, before, x.loaded(), of_row, x.arranged(), x.most, 32, x.kept())


def _part_scales(encoding: Encoding, w: str) -> list[str]:
    """Makes ``%factors`` of a super-block's parts, and before it ``%scaled``, or ``%least`` of sixteen minima."""
    apart = encoding.layout.minimum is not None and encoding.layout.scaled < BLOCK
    return [
        *part_scales(encoding, "", w),
        *(part_minima(encoding, "", w) if apart else ()),
        f"%factors = arith.mulf %scaled, %x_scales : {_SUMS}",
    ]


def _block_scales(layout: BlockLayout, blocks: int, loads: StepLoads) -> list[str]:
    """Makes ``%factors`` of a step's blocks, and before it ``%scaled``: of f16, or of exponents."""
    begins = [layout.bytes * block for block in range(blocks)]
    if layout.exponent:
        return _powers([begin + layout.scale for begin in begins], loads)
    count = blocks * len(layout.halves)
    floats = f"vector<{count}xf32>"
    lines = list[str]()
    for i, begin in enumerate(range(0, blocks, 4)):
        places = [first + half for half in layout.halves for first in begins[begin : begin + 4]]
        lines += loads.picked(f"halves{i}", [byte for place in places for byte in (place, place + 1)])
    few = count * 4 // blocks
    order = [
        lane + few * quad for half in range(0, few, 4) for quad in range(blocks // 4) for lane in range(half, half + 4)
    ]
    last = f"%halves{blocks // 4 - 1}"
    return [
        *lines,
        f"%halves = vector.shuffle %halves0, {last} {listed(order)} : vector<{few}xi16>, vector<{few}xi16>",
        f"%f16 = vector.bitcast %halves : vector<{count}xi16> to vector<{count}xf16>",
        f"%scaled = arith.extf %f16 : vector<{count}xf16> to {floats}",
        f"%factors = arith.mulf %scaled, %x_scales : {floats}",
    ]


def _powers(places: Sequence[int], loads: StepLoads) -> list[str]:
    """Makes ``%factors``: x's scales times 2**(e - 128) of bytes e.

    A power alone may be denormal in f32, which the threads of IREE flush to 0. Its product with a scale of x is not.
    """
    lanes, all_words, lines = len(places), "vector<16xi32>", list[str]()
    words, floats, four = f"vector<{lanes}xi32>", f"vector<{lanes}xf32>", "vector<4xi32>"
    for i, begin in enumerate(places[::4]):
        own = [(place - begin) // 4 for place in places[4 * i : 4 * i + 4]]
        lines += [
            *loads.loaded(f"exponents{i}", begin),
            f"%exponent_words{i} = vector.bitcast %exponents{i} : vector<64xi8> to {all_words}",
            f"%exponent_picked{i} = vector.shuffle %exponent_words{i}, %exponent_words{i} {listed(own)} : "
            f"{all_words}, {all_words}",
        ]
    right = [(place - places[i // 4 * 4]) % 4 * 8 for i, place in enumerate(places)]
    return [
        *lines,
        f"%exponent_picked = vector.shuffle %exponent_picked0, %exponent_picked{lanes // 4 - 1} "
        f"{listed(range(lanes))} : {four}, {four}",
        f"%exponent_right = arith.constant dense<{listed(right)}> : {words}",
        f"%exponent_low = arith.shrui %exponent_picked, %exponent_right : {words}",
        f"%exponent_mask = arith.constant dense<255> : {words}",
        f"%exponent_only = arith.andi %exponent_low, %exponent_mask : {words}",
        f"%exponent_bias = arith.constant dense<128> : {words}",
        f"%exponent_number = arith.subi %exponent_only, %exponent_bias : {words}",
        f"%exponent = arith.sitofp %exponent_number : {words} to {floats}",
        "%exponent_all = arith.constant -1 : i8",
        f"%factors = {scaled_by_power('%x_scales', '%exponent', '%exponent_all', lanes)}",
    ]


def _less(layout: BlockLayout, lanes: int, total: str) -> list[str]:
    """Makes ``%less``: a sum and minima, or scales, times ``%x_less``."""
    factors = "least" if layout.minimum is not None and layout.scaled < BLOCK else "scaled"
    names, lines = [f"%{factors}", "%x_less"], list[str]()
    if lanes < 16:
        kind, order = f"vector<{lanes}xf32>", listed([min(lane, lanes) for lane in range(16)])
        lines.append(f"%no_lanes = arith.constant dense<0.0> : {kind}")
        lines += [f"{name}_wide = vector.shuffle {name}, %no_lanes {order} : {kind}, {kind}" for name in names]
        names = [f"{name}_wide" for name in names]
    return [*lines, f"%less = math.fma {names[0]}, {names[1]}, {total} : {_SUMS}"]


def _group_dot(layout: BlockLayout, g: int, group: Sequence[Register], loads: StepLoads) -> list[str]:
    """Makes ``%dot<g>`` vector<16xi32>: the registers of a group times x, summed."""
    lines, total, last = list[str](), "", len(group) - 1
    for r, register in enumerate(group):
        name = f"w_{g}_{r}"
        lines += integer_words(layout, register, name, loads)
        for half in ("even", "odd"):
            product = word_dot(f"%{name}_{half}", f"%x_{g}_{r}_{half}")
            lines.append(f"%{name}_{half}_dot = {product}")
            after = f"%dot{g}" if r == last and half == "odd" else f"%{name}_{half}_sum"
            if total:
                lines.append(f"{after} = arith.addi {total}, %{name}_{half}_dot : {_TOTALS}")
            total = after if total else f"%{name}_{half}_dot"
    return lines


def _scaled(g: int, parts: Sequence[int], lanes: int, total: str) -> list[str]:
    """Makes ``%scaled<g>``: a sum and ``%dot<g>``, each lane times the factor of its part."""
    kind = f"vector<{lanes}xf32>"
    return [
        f"%float{g} = arith.sitofp %dot{g} : {_TOTALS} to {_SUMS}",
        f"%by{g} = vector.shuffle %factors, %factors {listed(parts)} : {kind}, {kind}",
        f"%scaled{g} = math.fma %float{g}, %by{g}, {total} : {_SUMS}",
    ]
