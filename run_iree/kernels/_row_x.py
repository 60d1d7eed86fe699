"""x of few tokens, in the order of products with a row per lane: the data of a step along the rows lie together.

Of each block of 32 columns of a step, and of each token, these are words of four bytes of x's high integers, the same
of its low ones, the initial sums of products, x's scale, and x's sum if W has minima.
"""

from dataclasses import dataclass
from typing import Final

from lang_core import BLOCK
from lang_core.ops import PLANE_BASE
from run_iree.kernels._lines import Buffer
from run_iree.kernels._text import Arrangement, CpuKernel, constants, indented, largest_divisor, listed
from run_iree.kernels._turned_rows import ROWS, WORD, TurnedRows

_WORDS: Final = BLOCK // WORD
_OWN_BLOCKS: Final = 64  # of a workgroup, as starting one takes as long as some
_BYTES: Final = f"vector<{BLOCK}xi8>"
_WIDE: Final = f"vector<{BLOCK}xi32>"  # of a bitcast of integers cut from 16 bits the compiler makes wrong shifts
_OF_BLOCK: Final = f"vector<{_WORDS}xi32>"


@dataclass(frozen=True, slots=True)
class RowX:
    """x of few tokens.

    Attributes:
        tokens: number of tokens.
        columns: columns of x.
        planes: planes of x's integers as they are given: one, or two of base ``PLANE_BASE``; here the base is 256.
        rows: rows of W; x is put into their order of columns.
    """

    tokens: int
    columns: int
    planes: int
    rows: TurnedRows

    @property
    def offset(self) -> int:
        """Excess of the weights' integers over their values."""
        return self.rows.offset

    @property
    def has_minima(self) -> bool:
        """True if sums of x are needed."""
        return self.rows.has_minima

    @property
    def steps(self) -> int:
        """Steps of a row."""
        return self.columns // (self.rows.blocks * BLOCK)

    @property
    def start(self) -> int:
        """Place of the initial sums among a token's words of a block."""
        return self.planes * _WORDS

    @property
    def scale(self) -> int:
        """Place of x's scale, which x's sum follows."""
        return self.start + (1 if self.offset else 0)

    @property
    def token_words(self) -> int:
        """Words of a token in a block."""
        return self.scale + (2 if self.has_minima else 1)

    @property
    def step_words(self) -> int:
        """Words of a step of all tokens."""
        return self.rows.blocks * self.tokens * self.token_words

    @property
    def made(self) -> Buffer:
        """Buffer of all."""
        return Buffer("x", self.steps * self.step_words, "i32")

    @property
    def numbers(self) -> list[int]:
        """Index constants that the lines need."""
        return [self.step_words, self.steps]

    def broadcast(self, name: str, block: int, token: int, place: int, kind: str) -> list[str]:
        """Makes ``%<name>`` of a word of a token, on all lanes; ``%x_at`` is the start of the step."""
        lines = [
            f"%{name}_place = arith.constant {(block * self.tokens + token) * self.token_words + place} : index",
            f"%{name}_at = arith.addi %x_at, %{name}_place : index",
            f"%{name}_one = memref.load %x[%{name}_at] : {self.made.memref}",
        ]
        one = f"%{name}_one"
        if kind != "i32":
            lines.append(f"%{name}_number = arith.bitcast {one} : i32 to {kind}")
            one = f"%{name}_number"
        return [*lines, f"%{name} = vector.broadcast {one} : {kind} to vector<{ROWS}x{kind}>"]

    def arrangement(self, given: tuple[Buffer, ...]) -> Arrangement:
        """Returns the dispatch that arranges q, scale and total; a workgroup has some steps of a token."""
        pieces = largest_divisor(self.steps, max(1, self.columns // BLOCK // _OWN_BLOCKS))
        own = self.steps // pieces
        body = f"""\
{constants([1, pieces, own, *self.numbers, self.rows.blocks, BLOCK, self.columns])}
%blocks_of_token = arith.constant {self.columns // BLOCK} : index
%columns_of_token = arith.constant {self.planes * self.columns} : index
%words_of_token = arith.constant {self.token_words} : index
%token = arith.divui %workgroup, %c{pieces} : index
%piece = arith.remui %workgroup, %c{pieces} : index
%first = arith.muli %piece, %c{own} : index
%end = arith.addi %first, %c{own} : index
%token_blocks = arith.muli %token, %blocks_of_token : index
%token_columns = arith.muli %token, %columns_of_token : index
%token_words = arith.muli %token, %words_of_token : index
scf.for %step = %first to %end step %c1 {{
  %step_blocks = arith.muli %step, %c{self.rows.blocks} : index
  %step_words = arith.muli %step, %c{self.step_words} : index
  %step_to = arith.addi %step_words, %token_words : index
{indented([line for block in range(self.rows.blocks) for line in self._arranged(block, given)], 2)}
}}
"""
        orders = "_".join(str(order[0]) for order in self.rows.orders)
        name = f"rows.{self.planes}.{self.offset}.{int(self.has_minima)}.{orders}.{self.tokens}x{self.columns}"
        return Arrangement(name, CpuKernel("tokens", (*given, self.made), self.tokens * pieces, body))

    def _arranged(self, block: int, given: tuple[Buffer, ...]) -> list[str]:
        """Arranges a block of ``%step`` of ``%token``."""
        q, scale, total = given
        order = listed(self.rows.orders[block])
        lines = [
            f"%own{block} = arith.constant {block} : index",
            f"%block{block} = arith.addi %step_blocks, %own{block} : index",
            f"%number{block} = arith.addi %token_blocks, %block{block} : index",
            f"%x_scale{block} = memref.load %scale[%number{block}] : {scale.memref}",
            f"%x_total{block} = memref.load %total[%number{block}] : {total.memref}",
            f"%column{block} = arith.muli %block{block}, %c{BLOCK} : index",
            f"%at{block}_0 = arith.addi %token_columns, %column{block} : index",
            f"%some{block}_0 = vector.load %q[%at{block}_0] : {q.memref}, {_BYTES}",
            *(self._rebased(block, q) if self.planes > 1 else []),
            f"%to_skip{block} = arith.constant {block * self.tokens * self.token_words} : index",
            f"%to{block} = arith.addi %step_to, %to_skip{block} : index",
        ]
        for plane, name in enumerate(["high", "low"] if self.planes > 1 else ["some"]):
            source, n = f"%{name}{block}_0", f"{block}_{plane}"
            lines += [
                f"%ordered{n} = vector.shuffle {source}, {source} {order} : {_BYTES}, {_BYTES}",
                f"%words{n} = vector.bitcast %ordered{n} : {_BYTES} to {_OF_BLOCK}",
                *self._put(f"words{n}", block, plane * _WORDS, _WORDS),
            ]
        more, others = self._others(block)
        made = f"%others{block} = vector.from_elements {', '.join(others)} : vector<{len(others)}xi32>"
        return [*lines, *more, made, *self._put(f"others{block}", block, self.start, len(others))]

    def _others(self, block: int) -> tuple[list[str], list[str]]:
        """Returns lines that make the words of a block other than integers of x, and their names."""
        lines, names = list[str](), list[str]()
        if self.offset:
            names.append(f"%start{block}")
            lines += [
                f"%less{block} = arith.constant {-self.offset} : i32",
                f"%start{block} = arith.muli %x_total{block}, %less{block} : i32",
            ]
        names.append(f"%scale_bits{block}")
        lines.append(f"%scale_bits{block} = arith.bitcast %x_scale{block} : f32 to i32")
        if self.has_minima:
            names.append(f"%sum_bits{block}")
            lines += [
                f"%total_float{block} = arith.sitofp %x_total{block} : i32 to f32",
                f"%x_sum{block} = arith.mulf %total_float{block}, %x_scale{block} : f32",
                f"%sum_bits{block} = arith.bitcast %x_sum{block} : f32 to i32",
            ]
        return lines, names

    def _rebased(self, block: int, q: Buffer) -> list[str]:
        """Makes ``%high<block>_0`` and ``%low<block>_0``, bytes: x's integers are 256 times the one plus the other."""
        lines = [
            f"%at{block}_1 = arith.addi %at{block}_0, %c{self.columns} : index",
            f"%some{block}_1 = vector.load %q[%at{block}_1] : {q.memref}, {_BYTES}",
            *(f"%wide{block}_{i} = arith.extsi %some{block}_{i} : {_BYTES} to {_WIDE}" for i in range(2)),
            f"%base{block} = arith.constant dense<{PLANE_BASE}> : {_WIDE}",
            f"%times{block} = arith.muli %wide{block}_0, %base{block} : {_WIDE}",
            f"%integers{block} = arith.addi %times{block}, %wide{block}_1 : {_WIDE}",
            f"%half{block} = arith.constant dense<128> : {_WIDE}",
            f"%eight{block} = arith.constant dense<8> : {_WIDE}",
            f"%nearest{block} = arith.addi %integers{block}, %half{block} : {_WIDE}",
            f"%upper{block} = arith.shrsi %nearest{block}, %eight{block} : {_WIDE}",
        ]
        for name, source in (("high", f"%upper{block}"), ("low", f"%integers{block}")):
            lines.append(f"%{name}{block}_0 = arith.trunci {source} : {_WIDE} to {_BYTES}")
        return lines

    def _put(self, name: str, block: int, place: int, count: int) -> list[str]:
        """Stores a vector at a place of the token's words of a block."""
        return [
            f"%{name}_place = arith.constant {place} : index",
            f"%{name}_to = arith.addi %to{block}, %{name}_place : index",
            f"vector.store %{name}, %x[%{name}_to] : {self.made.memref}, vector<{count}xi32>",
        ]
