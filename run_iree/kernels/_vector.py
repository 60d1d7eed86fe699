"""Products with packed weights for CPUs of any kind: vectors that every compiler backend takes apart."""

from dataclasses import dataclass
from typing import Final

from lang_core import BLOCK, Encoding
from lang_core.ops import PLANE_BASE
from run_iree.kernels._lines import Buffer, Lines, Operand, index, vector
from run_iree.kernels._packed_row import (
    block_minimum,
    block_scale,
    looked_up,
    packed_buffers,
    signed_block,
    unsigned_offset,
)
from run_iree.kernels._sub_scales import part_minima, part_scales
from run_iree.kernels._super_block import (
    CHUNK,
    chunks_of_group,
    group_integers,
    super_block_constants,
    super_block_numbers,
)
from run_iree.kernels._text import CpuKernel, constants, indented, own_rows, share, stored, wanted_workgroups

NAME: Final = "vector"
_LANES: Final = 8
_EIGHT: Final = vector(_LANES, "f32")
_SIXTEEN: Final = vector(16, "f32")


@dataclass(frozen=True, slots=True)
class XPlanes:
    """Integers of x in planes, with the scale and the sum of each block.

    Attributes:
        q: buffer [rows, planes, columns].
        scale: buffer [rows, columns / 32].
        total: buffer [rows, columns / 32].
        planes: number of planes.
        columns: columns of x.
    """

    q: Buffer
    scale: Buffer
    total: Buffer
    planes: int
    columns: int

    def block(self, b: Lines, name: str, place: Operand) -> Operand:
        """Returns vector<32xi32> of the integers with their first plane at an index.

        They are put together in 16 bits, so that compilers see products of 16 bits, for which CPUs have instructions.
        """
        words, wide = vector(BLOCK, "i16"), vector(BLOCK, "i32")
        stored = b.load(f"{name}_bytes", self.q, place, BLOCK)
        if self.planes == 1:
            return b.cast(name, "arith.extsi", stored, wide)
        second_at = b.same(f"{name}_second_at", "arith.addi", place, index(self.columns))
        second_stored = b.load(f"{name}_second_bytes", self.q, second_at, BLOCK)
        first = b.cast(f"{name}_first", "arith.extsi", stored, words)
        second = b.cast(f"{name}_second", "arith.extsi", second_stored, words)
        base = b.constant(f"{name}_base", PLANE_BASE, words)
        upper = b.same(f"{name}_upper", "arith.muli", first, base)
        joined = b.same(f"{name}_words", "arith.addi", upper, second)
        return b.cast(name, "arith.extsi", joined, wide)


@dataclass(frozen=True, slots=True)
class _Places:
    """Indices of a step along a row.

    Attributes:
        block: number of the block of w in the row.
        w: first byte of the block of w.
        x: beginning of the token's x.
        scales: beginning of the token's scales and sums.
    """

    block: Operand
    w: Operand
    x: Operand
    scales: Operand


def vector_kernel(rows: int, outputs: int, columns: int, encoding: Encoding, dtype: str, planes: int) -> CpuKernel:
    """Builds q i8 [rows, planes, columns], scale f32, total i32 [rows, columns / 32], w: y [rows, outputs]."""
    buffers = packed_buffers(rows, outputs, columns, encoding, dtype, planes)
    q, scale, total, weight, _ = buffers
    x = XPlanes(q, scale, total, planes, columns)
    supers, size, blocks = columns // encoding.block, encoding.block_bytes, columns // BLOCK
    row_count, workgroups = share(outputs, 1, wanted_workgroups(weight.elements))
    is_super = encoding.block > BLOCK
    before, inner = (_k_constants(encoding), _super_block) if is_super else (_constants(encoding), _block)
    numbers = [
        *(1, 2, 8, BLOCK, planes * columns, encoding.block, size, supers, supers * size, columns, blocks, row_count),
        *(outputs, rows, *range(0, encoding.block, BLOCK), encoding.layout.planes[0].at),
        *(super_block_numbers(encoding) if is_super else []),
    ]
    step = Lines()
    places = _Places(*(Operand(name, "index") for name in ("%block", "%at", "%x_begin", "%s_begin")))
    after = inner(step, places, Operand("%sum", _EIGHT), x, encoding, weight)
    body = f"""\
{constants(numbers)}
{indented(before, 0)}
%none = arith.constant dense<0.0> : {_EIGHT}
{own_rows(row_count, outputs)}
scf.for %row = %first to %end step %c1 {{
  %begin = arith.muli %row, %c{supers * size} : index
  scf.for %token = %c0 to %c{rows} step %c1 {{
    %x_begin = arith.muli %token, %c{planes * columns} : index
    %s_begin = arith.muli %token, %c{blocks} : index
    %made = scf.for %block = %c0 to %c{supers} step %c1 iter_args(%sum = %none) -> ({_EIGHT}) {{
      %in_row = arith.muli %block, %c{size} : index
      %at = arith.addi %begin, %in_row : index
{indented(step, 6)}
      scf.yield {after} : {after.kind}
    }}
    %y_row = vector.reduction <add>, %made : {_EIGHT} into f32
    %line = arith.muli %token, %c{outputs} : index
    %place = arith.addi %line, %row : index
{indented(stored("y_row", "%place", buffers[-1]), 4)}
  }}
}}
"""
    return CpuKernel(NAME, buffers, workgroups, body)


def _constants(encoding: Encoding) -> list[str]:
    return [
        "%nibble = arith.constant dense<15> : vector<16xi8>",
        f"%offset = arith.constant dense<{unsigned_offset(encoding)}> : vector<32xi8>",
        "%four = arith.constant dense<4> : vector<16xi8>",
    ]


def _block(b: Lines, at: _Places, before: Operand, x: XPlanes, encoding: Encoding, w: Buffer) -> Operand:
    """Returns the sum before a block of 32 and its products."""
    q_at = b.same("q_at", "arith.addi", at.w, index(encoding.layout.planes[0].at))
    w_scale = b.given(block_scale(encoding, at.w, "w_scale", w.memref), "w_scale", "f32")
    signed = b.given(signed_block(encoding, at.w, q_at, "signed", w.memref), "signed", vector(BLOCK, "i8"))
    in_x = b.same("in_x", "arith.muli", at.block, index(BLOCK))
    x_at = b.same("x_at", "arith.addi", at.x, in_x)
    s_at = b.same("s_at", "arith.addi", at.scales, at.block)
    low, high = _products(b, "", x.block(b, "x_wide", x_at), signed)
    dot = b.same("dot", "arith.addi", low, high)
    products = b.cast("dot_float", "arith.sitofp", dot, _EIGHT)
    x_scale = b.load("x_scale", x.scale, s_at)
    both = b.same("both", "arith.mulf", w_scale, x_scale)
    factors = b.broadcast("all", both, _LANES)
    if encoding.layout.minimum is not None:
        # On one lane: the minimum of the block times the sum of x.
        least = b.given(block_minimum(encoding, at.w, "least", w.memref), "least", "f32")
        total = b.cast("total_float", "arith.sitofp", b.load("total_int", x.total, s_at), "f32")
        least_sum = b.same("least_sum", "arith.mulf", least, b.same("x_sum", "arith.mulf", total, x_scale))
        lane = b.make("lane", f"vector.insert {least_sum}, %none[0] : f32 into {_EIGHT}", _EIGHT)
        before = b.same("more", "arith.addf", before, lane)
    return b.same("next", "math.fma", products, factors, before)


def _k_constants(encoding: Encoding) -> list[str]:
    above = f"%above = arith.constant dense<{encoding.layout.offset}> : vector<{CHUNK}xi8>"
    return [*super_block_constants(encoding), above]


def _super_block(b: Lines, at: _Places, before: Operand, x: XPlanes, encoding: Encoding, w: Buffer) -> Operand:
    """Returns the sum before a super-block and its products: less all minima, then part after part."""
    layout, blocks = encoding.layout, encoding.block // BLOCK
    parts = BLOCK // layout.scaled  # of a block of 32
    in_x = b.same("in_x", "arith.muli", at.block, index(encoding.block))
    x_at = b.same("x_at", "arith.addi", at.x, in_x)
    in_scales = b.same("in_scales", "arith.muli", at.block, index(blocks))
    s_at = b.same("s_at", "arith.addi", at.scales, in_scales)
    xs = b.load("xs", x.scale, s_at, _LANES)
    scaled = b.given(part_scales(encoding, "", w.memref), "scaled", _SIXTEEN)
    minus = None
    if layout.minimum is not None and parts == 1:
        factors, before = _less_minima(b, x, s_at, xs, scaled, before)
    else:
        factors, x_scales = _factors(b, xs, scaled, parts)
        if layout.minimum is not None:  # minima of parts times x's scales, negated
            least = b.given(part_minima(encoding, "", w.memref), "least", _SIXTEEN)
            minus = b.same("minus", "arith.negf", b.same("minima", "arith.mulf", least, x_scales))
    names = iter([*(f"sum_{i}" for i in range(blocks * parts * (1 if minus is None else 2) - 1)), "next"])
    integers = Operand("", "")
    for block in range(blocks):
        if block % 2 == 0:
            integers = _integers(b, block // 2, encoding, w)
        wide, low, high = _chunk_half(b, block, integers, x, x_at)
        dots = [b.same(f"dot{block}", "arith.addi", low, high)] if parts == 1 else [low, high]
        for part, dot in enumerate(dots, parts * block):
            before = _added(b, next(names), dot, factors, part, before)
        if minus is not None:
            for part, dot in enumerate(_sums_of_x(b, block, wide), parts * block):
                before = _added(b, next(names), dot, minus, part, before)
    return before


def _integers(b: Lines, chunk: int, encoding: Encoding, w: Buffer) -> Operand:
    """Returns the values of a chunk's integers, vector<64xi8>; the first chunk of a group reads the others too."""
    layout, kind = encoding.layout, vector(CHUNK, "i8")
    if chunk % chunks_of_group(layout) == 0:
        b.extend(group_integers(encoding, "", chunk // chunks_of_group(layout), w.memref))
    unsigned = Operand(f"%u_{chunk}", kind)
    if layout.offset:
        unsigned = b.same(f"signed{chunk}", "arith.subi", unsigned, Operand("%above", kind))
    if layout.table is None:
        return unsigned
    return b.given(looked_up(layout.table, f"%u_{chunk}", f"signed{chunk}", CHUNK), f"signed{chunk}", kind)


def _sums_of_x(b: Lines, block: int, wide: Operand) -> list[Operand]:
    """Returns sums, vector<8xi32>, of two of the first sixteen integers of x's block and of two of the last."""
    sums = []
    for side, first in (("low", 0), ("high", 16)):
        name = f"x_{side}{block}"
        words = [
            b.shuffle(f"{name}_{word}", wide, wide, range(begin, begin + _LANES))
            for word, begin in (("a", first), ("b", first + _LANES))
        ]
        sums.append(b.same(name, "arith.addi", *words))
    return sums


def _less_minima(
    b: Lines, x: XPlanes, s_at: Operand, xs: Operand, scaled: Operand, before: Operand
) -> tuple[Operand, Operand]:
    """Returns the scales times x's, and the sum before less minima times the sums of x."""
    scales = b.shuffle("scales", scaled, scaled, range(_LANES))
    minima = b.shuffle("minima", scaled, scaled, range(_LANES, 2 * _LANES))
    factors = b.same("factors", "arith.mulf", scales, xs)
    totals = b.load("totals", x.total, s_at, _LANES)
    x_sums = b.same("x_sums", "arith.mulf", b.cast("total_floats", "arith.sitofp", totals, _EIGHT), xs)
    least = b.same("least", "arith.mulf", minima, x_sums)
    return factors, b.same("less", "arith.subf", before, least)


def _factors(b: Lines, xs: Operand, scaled: Operand, parts: int) -> tuple[Operand, Operand]:
    """Returns the scales of each block's parts times x's, vector<16xf32>, or vector<8xf32> of one part; and x's."""
    if parts == 1:
        scales = b.shuffle("scales", scaled, scaled, range(_LANES))
        return b.same("factors", "arith.mulf", scales, xs), xs
    spread = [block for block in range(2 * _LANES // parts) for _ in range(parts)]
    x_scales = b.shuffle("x_scales", xs, xs, spread)
    return b.same("factors", "arith.mulf", scaled, x_scales), x_scales


def _chunk_half(b: Lines, block: int, integers: Operand, x: XPlanes, x_at: Operand) -> tuple[Operand, Operand, Operand]:
    """Returns a block of x, and the sums of its products with its half of a chunk, as ``_products`` does."""
    place = b.same(f"xq_at{block}", "arith.addi", x_at, index(BLOCK * block))
    wide = x.block(b, f"x_wide{block}", place)
    first = BLOCK * (block % 2)
    own = b.shuffle(f"w{block}", integers, integers, range(first, first + BLOCK))
    return wide, *_products(b, f"{block}", wide, own)


def _products(b: Lines, n: str, x: Operand, w: Operand) -> tuple[Operand, Operand]:
    """Returns sums, vector<8xi32>, of two of the first sixteen products and of two of the last."""
    products = b.same(f"products{n}", "arith.muli", x, b.cast(f"w_wide{n}", "arith.extsi", w, x.kind))
    even = b.shuffle(f"even{n}", products, products, range(0, BLOCK, 2))
    odd = b.shuffle(f"odd{n}", products, products, range(1, BLOCK, 2))
    pairs = b.same(f"pairs{n}", "arith.addi", even, odd)
    low = b.shuffle(f"low{n}", pairs, pairs, range(_LANES))
    return low, b.shuffle(f"high{n}", pairs, pairs, range(_LANES, 2 * _LANES))


def _added(b: Lines, name: str, dot: Operand, factors: Operand, part: int, before: Operand) -> Operand:
    """Returns the sum before and integers times a part's entry of ``factors``."""
    products = b.cast(f"float_{name}", "arith.sitofp", dot, _EIGHT)
    factor = b.extract(f"factor_{name}", factors, part)
    return b.same(name, "math.fma", products, b.broadcast(f"all_{name}", factor, _LANES), before)
