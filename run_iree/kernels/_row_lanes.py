"""Y = X W^T of tokens, W packed in blocks of 32: a lane is a row of W, a number of x is on all lanes.

A token's results have the bits of ``_integers_matmul.py``, which has a token per lane: block after block, the exact sum
of a block's products of integers, times its scales, is added to one f32. So prompts may have that kernel if a token's
bits must not depend on how many there are. Sums of a tile of tokens stay in registers for all columns; blocks of
sixteen rows are turned (``_turned_rows.py``) once for a tile, and come from memory for the first tile alone.

Blocks of 32 of sixteen rows of a packed weight are transposed. A step is two blocks, a whole number of words of 32
bits, which are read together with the scales between them. If integers begin in the middle of a word, the first two
bytes and the last two are one: so a block's bytes are turned by two, and x with them.
"""

from dataclasses import dataclass
from typing import Final

from lang_core import BLOCK, Encoding
from run_iree.kernels._block_dots import BlockDots, fits_pair_dots
from run_iree.kernels._lines import LINE, Buffer
from run_iree.kernels._packed_row import packed_buffers, unsigned_offset
from run_iree.kernels._row_x import RowX
from run_iree.kernels._text import (
    CpuKernel,
    constants,
    indented,
    own_rows,
    prefetches,
    results,
    share,
    wanted_workgroups,
    within,
)
from run_iree.kernels._turned_rows import (
    BYTES,
    FLOATS,
    QUARTER,
    ROWS,
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


MOST_TOKENS: Final = {1: 24, 2: 16}  # by planes of x, with VNNI; beyond, lanes of tokens are as fast
_TILE: Final = 12  # tokens whose sums registers hold
_TOGETHER: Final = 4  # tokens whose instructions stand side by side
_NEAR: Final = 24 << 10  # bytes of sixteen rows, up to which the next ones go to the first cache
_FAR: Final = 3  # times sixteen rows, after those, that go to the second one


def fits_row_lanes(outputs: int, columns: int, encoding: Encoding, *, vnni: bool) -> bool:
    """Returns whether a weight has whole groups of rows with blocks that can be transposed.

    Without VNNI, of four bits.
    """
    return outputs % ROWS == 0 and fits_turned_blocks(columns, encoding) and (vnni or fits_pair_dots(encoding))


def row_lanes_kernel(
    sizes: tuple[int, int, int], encoding: Encoding, dtype: str, *, planes: int, vnni: bool
) -> CpuKernel:
    """Builds q i8 [T, planes, K], scale f32, total i32 [T, K / 32], w [N, bytes]: y [T, N], with AVX-512.

    Args:
        sizes: T, N, K; see ``MOST_TOKENS`` and ``fits_row_lanes``.
        encoding: encoding of w.
        dtype: dtype of y.
        planes: planes of 8 bits of x's integers.
        vnni: whether to use VNNI.
    """
    tokens, outputs, columns = sizes
    *given, w, y = packed_buffers(tokens, outputs, columns, encoding, dtype, planes)
    rows = turned_blocks(encoding, w, w.elements // outputs)
    x = RowX(tokens, columns, planes, rows)
    loop = _Loop(rows, x, y, BlockDots(planes, bool(x.offset), vnni))
    own, workgroups = share(outputs, ROWS, wanted_workgroups(w.elements // 2))
    numbers = [1, ROWS, own, outputs, *rows.numbers, *x.numbers, *loop.numbers]
    body = f"""\
{constants(numbers)}
{indented(rows.before, 0)}
%none = arith.constant dense<0.0> : {FLOATS}
{indented(loop.dots.before, 0)}
{own_rows(own, outputs)}
scf.for %row = %first to %end step %c{ROWS} {{
{indented(loop.of_rows(), 2)}
}}
"""
    return CpuKernel(
        f"avx512{'-vnni' if vnni else ''}-row-lanes", (x.made, w, y), workgroups, body, x.arrangement(tuple(given))
    )


@dataclass(frozen=True, slots=True)
class _Loop:
    """Loop over the blocks of sixteen rows.

    Attributes:
        rows: rows of W.
        x: x of all tokens.
        y: result.
        dots: products of a block.
    """

    rows: TurnedRows
    x: RowX
    y: Buffer
    dots: BlockDots

    @property
    def tiles(self) -> int:
        """Number of tiles of tokens."""
        return -(-self.x.tokens // _TILE)

    @property
    def tile(self) -> int:
        """Tokens of a tile; the last one begins early if there are fewer."""
        return -(-self.x.tokens // self.tiles)

    @property
    def lines(self) -> range:
        """Bytes of a step at which cache lines of the next rows are asked for."""
        return range(0, ROWS * self.rows.step_bytes, LINE)

    @property
    def numbers(self) -> list[int]:
        """Index constants that the lines need."""
        return [*self.lines, self.tiles, self.tile, self.x.tokens - self.tile, self.x.token_words, self._outputs]

    @property
    def _outputs(self) -> int:
        return self.y.elements // self.x.tokens

    def of_rows(self) -> list[str]:
        """Makes and stores the results of the sixteen rows from ``%row`` on, a tile of tokens after the other."""
        return [
            f"%begin = arith.muli %row, %c{self.rows.row_bytes} : index",
            f"%soon = arith.addi %begin, %c{ROWS * self.rows.row_bytes} : index",
            f"scf.for %tile = %c0 to %c{self.tiles} step %c1 {{",
            f"  %token_even = arith.muli %tile, %c{self.tile} : index",
            f"  %token = arith.minui %token_even, %c{self.x.tokens - self.tile} : index",
            f"  %token_at = arith.muli %token, %c{self.x.token_words} : index",
            f"  %y_line = arith.muli %token, %c{self._outputs} : index",
            "  %y_first = arith.addi %y_line, %row : index",
            *within(self._of_tile()),
            "}",
        ]

    def _of_tile(self) -> list[str]:
        """Makes and stores the results of the tokens from ``%token`` on."""
        tokens = range(self.tile)
        made = results("%made", len(tokens))
        carried = ", ".join(f"%sum{t} = %none" for t in tokens)
        kinds = ", ".join([FLOATS] * len(tokens))
        return [
            f"%made{'' if len(tokens) == 1 else f':{len(tokens)}'} = scf.for %step = %c0 to %c{self.x.steps} step %c1 "
            f"iter_args({carried}) -> ({kinds}) {{",
            f"  %in_row = arith.muli %step, %c{self.rows.step_bytes} : index",
            "  %at = arith.addi %begin, %in_row : index",
            f"  %in_rows = arith.muli %step, %c{ROWS * self.rows.step_bytes} : index",
            "  %soon_at = arith.addi %soon, %in_rows : index",
            *within(self.rows.of_step),
            f"  %x_step = arith.muli %step, %c{self.x.step_words} : index",
            "  %x_at = arith.addi %x_step, %token_at : index",
            *(line for block in range(self.rows.blocks) for line in within(self._of_block(block))),
            f"  scf.yield {', '.join(f'%next{self.rows.blocks - 1}_{t}' for t in tokens)} : {kinds}",
            "}",
            *(line for t in tokens for line in self._put(t, made[t])),
        ]

    def _of_block(self, block: int) -> list[str]:
        """Makes ``%next<block>_<token>`` of the tile; independent lines stand side by side."""
        tokens = range(self.tile)
        own = -(-len(self.lines) // self.rows.blocks)
        lines = [*self._asked_for(block, self.lines[own * block : own * block + own]), *self.rows.of_blocks[block]]
        for first in range(0, len(tokens), _TOGETHER):
            of_tokens = [self._of_token(block, t) for t in tokens[first : first + _TOGETHER]]
            lines += [line for side_by_side in zip(*of_tokens, strict=True) for line in side_by_side]
        return lines

    def _asked_for(self, block: int, lines: range) -> list[str]:
        """Prefetches lines of the next sixteen rows; the first cache takes short ones, the second those far ahead."""
        w, group = self.rows.w, ROWS * self.rows.row_bytes
        if group > _NEAR:
            return prefetches(f"soon{block}_", "%soon_at", w, lines, locality=2)
        return [
            *prefetches(f"soon{block}_", "%soon_at", w, lines),
            f"%far{block} = arith.constant {_FAR * group} : index",
            f"%far_at{block} = arith.addi %soon_at, %far{block} : index",
            *prefetches(f"far{block}_", f"%far_at{block}", w, lines, locality=2),
        ]

    def _of_token(self, block: int, t: int) -> list[str]:
        """Makes ``%next<block>_<t>`` of the sum before it and a block of all rows."""
        x, n = self.x, f"{block}_{t}"
        lines = x.broadcast(f"start{n}", block, t, x.start, "i32") if x.offset else []
        for plane in range(x.planes):
            for word in range(BLOCK // WORD):
                name = f"x{n}_{plane}_{word}"
                lines += x.broadcast(name, block, t, plane * (BLOCK // WORD) + word, "i32")
                lines.append(f"%{name}_bytes = vector.bitcast %{name} : {WORDS} to {BYTES}")
                lines += self.dots.added(n, plane, word, f"%w{block}_{word}", f"%{name}_bytes")
            lines += self.dots.joined(n, plane)
        return [*lines, *self._scaled(block, t, f"%total{n}")]

    def _scaled(self, block: int, t: int, total: str) -> list[str]:
        """Adds a block's products, times scales, and minima times x's sums, to a token's sum."""
        x, n = self.x, f"{block}_{t}"
        before = f"%next{block - 1}_{t}" if block else f"%sum{t}"
        lines = x.broadcast(f"x_scale{n}", block, t, x.scale, "f32")
        if x.has_minima:
            lines += x.broadcast(f"x_sum{n}", block, t, x.scale + 1, "f32")
            lines.append(f"%less{n} = math.fma %minima{block}, %x_sum{n}, {before} : {FLOATS}")
            before = f"%less{n}"
        return [
            *lines,
            f"%float{n} = arith.sitofp {total} : {WORDS} to {FLOATS}",
            f"%both{n} = arith.mulf %scales{block}, %x_scale{n} : {FLOATS}",
            f"%next{n} = math.fma %float{n}, %both{n}, {before} : {FLOATS}",
        ]

    def _put(self, t: int, value: str) -> list[str]:
        """Stores a token's results of the sixteen rows."""
        kind = f"vector<{ROWS}x{self.y.kind}>"
        lines = [
            f"%line{t} = arith.constant {t * self._outputs} : index",
            f"%y_at{t} = arith.addi %y_first, %line{t} : index",
        ]
        if self.y.kind != "f32":
            lines.append(f"%rounded{t} = arith.truncf {value} : {FLOATS} to {kind}")
            value = f"%rounded{t}"
        return [*lines, f"vector.store {value}, %y[%y_at{t}] : {self.y.memref}, {kind}"]
