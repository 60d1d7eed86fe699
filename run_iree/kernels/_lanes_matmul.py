"""Y = X W^T of several tokens: a lane is a token, a number of W is on all lanes.

Sixteen rows of W are unpacked at a time, part by part, once for up to 128 tokens. Sums stay on the stack until all
columns are done, those of a row beside each other, because in y they are a page apart.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lang_core import BLOCK
from run_iree.kernels._lines import Buffer
from run_iree.kernels._text import Arrangement, CpuKernel, constants, indented, scratch, turned, within
from run_iree.kernels._tokens import Tokens

ROWS: Final = 16  # of W at a time
_SPAN: Final = {False: 128, True: 64}  # tokens for which W is read once; if totals lie beside sums


@dataclass(frozen=True, slots=True)
class Products:
    """Lines that unpack a part of W and multiply with it.

    Attributes:
        name: name of the kernel.
        stored: elements of w's buffer in a part of a row.
        numbers: index constants that the lines need.
        before: lines ahead of all loops, which allocate scratch.
        unpack: lines that unpack row ``%r`` of the sixteen, from its part at ``%at`` of w, and prefetch the same
            part of the next sixteen rows.
        rows_of: by registers of a tile, 2 or 1, the rows that are multiplied at once.
        lines: gives lines that add products to the sums (``sums_loaded``, ``sums_stored``), for the registers of a
            tile that begins at ``%x_first`` and a range of rows.
    """

    name: str
    stored: int
    numbers: Sequence[int]
    before: Sequence[str]
    unpack: Sequence[str]
    rows_of: Mapping[int, Sequence[int]]
    lines: Callable[[int, range], list[str]]


def sum_registers(count: int, rows: range) -> list[tuple[int, int]]:
    """Returns row and half of each register of sums, for a tile of ``count`` registers of tokens."""
    return [(r, half) for r in rows for half in range(count)]


def _span_tokens(tokens: Tokens) -> int:
    """Returns for how many tokens W is read once, beside those of a tile of one register."""
    return _SPAN[tokens.accumulators > 1]


def _sums(tokens: Tokens) -> str:
    """Returns the type of ``%sums``, and of ``%totals`` if there are several accumulators."""
    return f"memref<{(_span_tokens(tokens) + tokens.lanes) * ROWS}xf32>"


def _used(tokens: Tokens) -> int:
    """Returns how many of the sums are used."""
    return min(_span_tokens(tokens) + tokens.lanes, tokens.registers * tokens.lanes) * ROWS


def _sum_places(tokens: Tokens, count: int, rows: range) -> list[str]:
    """Makes ``%sum_at<row>_<half>``, the places of sums."""
    lines = []
    for r, half in sum_registers(count, rows):
        lines += [
            f"%sum_skip{r}_{half} = arith.constant {(r * count + half) * tokens.lanes} : index",
            f"%sum_at{r}_{half} = arith.addi %sums_at, %sum_skip{r}_{half} : index",
        ]
    return lines


def sums_loaded(tokens: Tokens, name: str, r: int, half: int, memory: str = "sums") -> str:
    """Returns the line that loads a register of sums."""
    return f"%{name} = vector.load %{memory}[%sum_at{r}_{half}] : {_sums(tokens)}, {tokens.floats}"


def sums_stored(tokens: Tokens, name: str, r: int, half: int) -> str:
    """Returns the line that stores a register of sums."""
    return f"vector.store {name}, %sums[%sum_at{r}_{half}] : {_sums(tokens)}, {tokens.floats}"


def lanes_matmul(tokens: Tokens, w: Buffer, y: Buffer, products: Products, arrangement: Arrangement) -> CpuKernel:
    """Builds the kernel of y [T, N], N a multiple of 16, of arranged tokens and w."""
    outputs, span = y.elements // tokens.rows, _span_tokens(tokens) // tokens.tile
    row_elements, few = w.elements // outputs, tokens.tiles <= span
    spans = [
        f"scf.for %span = %c0 to %c{max(1, tokens.tiles)} step %c{span} {{",
        f"  %span_end = arith.addi %span, %c{span} : index",
        f"  %last = arith.minui %span_end, %c{tokens.tiles} : index",
        *within(_span(tokens, y, products, row_elements, "%span", tokens.rest and few)),
        "}",
    ]
    if tokens.rest and not few:
        spans += [f"%last = arith.addi %c{tokens.tiles}, %c0 : index"]
        spans += _span(tokens, y, products, row_elements, f"%c{tokens.tiles}", True)
    numbers = [1, tokens.lanes, ROWS, tokens.tile, tokens.tile * ROWS, outputs, tokens.rows, tokens.tiles]
    numbers += [max(1, tokens.tiles), span, tokens.parts, tokens.part_words]
    numbers += [tokens.tile * tokens.depth, products.stored, row_elements, _used(tokens)]
    memories = [scratch("sums", _sums(tokens))]
    if tokens.accumulators > 1:
        numbers += [tokens.accumulators, _block_elements(tokens, products), tokens.accumulators * products.stored]
        memories.append(scratch("totals", _sums(tokens)))
    body = f"""\
{constants([*numbers, *products.numbers])}
{indented(products.before, 0)}
%none = arith.constant dense<0.0> : {tokens.floats}
{indented(memories, 0)}
%row = arith.muli %workgroup, %c{ROWS} : index
{indented(spans, 0)}
"""
    return CpuKernel(products.name, (tokens.made, w, y), outputs // ROWS, body, arrangement)


def _span(tokens: Tokens, y: Buffer, products: Products, row_elements: int, first: str, rest: bool) -> list[str]:
    """Multiplies the rows of W by the tiles from ``first`` to ``%last``, and with ``rest`` by that of one register."""

    def for_tiles(of_tile: Callable[[int], list[str]]) -> list[str]:
        """Loops over the tiles, with ``%tile`` and ``%sums_at``, the start of a tile's sums."""
        lines = [
            f"scf.for %tile = {first} to %last step %c1 {{",
            f"  %of_span = arith.subi %tile, {first} : index",
            f"  %sums_at = arith.muli %of_span, %c{tokens.tile * ROWS} : index",
            *within(of_tile(2)),
            "}",
        ]
        if rest:
            lines += [
                f"%tile = arith.addi %c{tokens.tiles}, %c0 : index",
                f"%of_span = arith.subi %last, {first} : index",
                f"%sums_at = arith.muli %of_span, %c{tokens.tile * ROWS} : index",
                *of_tile(1),
            ]
        return lines

    of_part = [
        f"%x_part = arith.muli %part, %c{tokens.part_words} : index",
        f"%rows_at = arith.muli %row, %c{row_elements} : index",
        "%part_at = arith.addi %rows_at, %in_row : index",
        f"scf.for %r = %c0 to %c{ROWS} step %c1 {{",
        f"  %row_skip = arith.muli %r, %c{row_elements} : index",
        "  %at = arith.addi %part_at, %row_skip : index",
        *within(products.unpack),
        "}",
        *for_tiles(lambda count: _multiplied(tokens, products, count)),
    ]
    if tokens.accumulators == 1:
        return [
            *_for_sums(tokens, [f"vector.store %none, %sums[%sum] : {_sums(tokens)}, {tokens.floats}"]),
            f"scf.for %part = %c0 to %c{tokens.parts} step %c1 {{",
            f"  %in_row = arith.muli %part, %c{products.stored} : index",
            *within(of_part),
            "}",
            *for_tiles(lambda count: _stored(tokens, y, count, "sums")),
        ]
    return [*_by_turns(tokens, products, of_part), *for_tiles(lambda count: _stored(tokens, y, count, "totals"))]


def _block_elements(tokens: Tokens, products: Products) -> int:
    """Returns how many elements of w's buffer a block has."""
    return products.stored * BLOCK // tokens.part


def _for_sums(tokens: Tokens, lines: Sequence[str]) -> list[str]:
    """Loops over the registers of sums, at ``%sum``."""
    return [f"scf.for %sum = %c0 to %c{_used(tokens)} step %c{tokens.lanes} {{", *within(lines), "}"]


def _by_turns(tokens: Tokens, products: Products, of_part: Sequence[str]) -> list[str]:
    """Makes ``%totals``, the sums of one accumulator after the other added up."""
    sums = f"{_sums(tokens)}, {tokens.floats}"
    added = [
        f"%before = vector.load %totals[%sum] : {sums}",
        f"%own = vector.load %sums[%sum] : {sums}",
        f"%both = arith.addf %before, %own : {tokens.floats}",
        f"vector.store %both, %totals[%sum] : {sums}",
    ]
    return [
        *_for_sums(tokens, [f"vector.store %none, %totals[%sum] : {sums}"]),
        f"scf.for %accumulator = %c0 to %c{tokens.accumulators} step %c1 {{",
        *within(_for_sums(tokens, [f"vector.store %none, %sums[%sum] : {sums}"])),
        f"  %own_begin = arith.muli %accumulator, %c{_block_elements(tokens, products)} : index",
        f"  %parts_before = arith.muli %accumulator, %c{tokens.parts} : index",
        f"  scf.for %own_part = %c0 to %c{tokens.parts} step %c1 {{",
        "    %part = arith.addi %parts_before, %own_part : index",
        f"    %own_skip = arith.muli %own_part, %c{tokens.accumulators * products.stored} : index",
        "    %in_row = arith.addi %own_begin, %own_skip : index",
        *within(of_part, 4),
        "  }",
        *within(_for_sums(tokens, added)),
        "}",
    ]


def _multiplied(tokens: Tokens, products: Products, count: int) -> list[str]:
    lines, first = [], 0
    for some in products.rows_of[count]:
        rows = range(first, first + some)
        lines += [*_sum_places(tokens, count, rows), *products.lines(count, rows)]
        first += some
    return [
        f"%tile_skip = arith.muli %tile, %c{tokens.tile * tokens.depth} : index",
        "%x_first = arith.addi %x_part, %tile_skip : index",
        *lines,
    ]


def _stored(tokens: Tokens, y: Buffer, count: int, memory: str) -> list[str]:
    """Stores the sums of a tile, transposed, to y."""
    lanes = tokens.lanes
    lines = [f"%token = arith.muli %tile, %c{tokens.tile} : index", *_sum_places(tokens, count, range(ROWS))]
    for half in range(count):
        for side in range(0, ROWS, lanes):
            name = f"{half}_{side}_"
            lines += [sums_loaded(tokens, f"row{name}{r}", side + r, half, memory) for r in range(lanes)]
            rows = [f"%row{name}{r}" for r in range(lanes)]
            names, more = turned(rows, tokens.bits, "f32", prefix=f"turn{name}", lanes=lanes)
            lines += more
            for t, made in enumerate(names):
                lines += _put(tokens, y, f"{name}{t}", made, half * lanes + t, side)
    return lines


def _put(tokens: Tokens, y: Buffer, name: str, value: str, token: int, side: int) -> list[str]:
    """Stores a register of results of a token of the tile, from row ``side`` of the sixteen on."""
    kind = f"vector<{tokens.lanes}x{y.kind}>"
    lines = [
        f"%own{name} = arith.constant {token} : index",
        f"%token{name} = arith.addi %token, %own{name} : index",
        f"%line{name} = arith.muli %token{name}, %c{y.elements // tokens.rows} : index",
        f"%side{name} = arith.constant {side} : index",
        f"%row_of{name} = arith.addi %row, %side{name} : index",
        f"%y_at{name} = arith.addi %line{name}, %row_of{name} : index",
    ]
    if y.kind != "f32":
        lines.append(f"%rounded{name} = arith.truncf {value} : {tokens.floats} to {kind}")
        value = f"%rounded{name}"
    store = f"vector.store {value}, %y[%y_at{name}] : {y.memref}, {kind}"
    if tokens.rows % tokens.lanes == 0:
        return [*lines, store]
    return [
        *lines,
        f"%is{name} = arith.cmpi ult, %token{name}, %c{tokens.rows} : index",
        f"scf.if %is{name} {{",
        f"  {store}",
        "}",
    ]
