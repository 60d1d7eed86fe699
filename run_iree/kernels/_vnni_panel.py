"""Panels of products of several tokens with VNNI, and the tokens that read them together, for all encodings.

Sixteen rows of W at a time are turned into a panel: in each register four neighbouring integers of all sixteen, so that
``vpdpbusd`` with four integers of a token, the same on every lane, advances sixteen products.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from lang_core import BLOCK
from run_iree.kernels._text import listed, turned, within

ROWS: Final = 16  # of W in a panel
TOKENS: Final = 8  # that share what is loaded of a panel
WORDS: Final = BLOCK // 4
_WORDS_OF_ROW: Final = f"vector<{WORDS}xi32>"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a product: tokens, rows of W, columns, and blocks of 32 columns of a panel."""

    rows: int
    outputs: int
    columns: int
    chunk: int

    @property
    def panel(self) -> str:
        """Type of the panel."""
        return f"memref<{self.chunk * WORDS * ROWS}xi32>"

    def scratch(self, count: int, kind: str = "f32") -> str:
        """Returns the type of a memref with ``count`` elements for every block and row of the panel."""
        return f"memref<{self.chunk * count * ROWS}x{kind}>"


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines that fill a panel and multiply with it.

    Attributes:
        numbers: index constants that the lines need.
        before: lines ahead of all loops, which allocate scratch beside ``%panel``.
        pack: lines that fill the panel from ``%chunk`` (a block of the row) and ``%row`` on.
        of_tokens: gives lines ahead of the loop over blocks, for a tag of names and a number of tokens.
        of_block: gives lines that make ``%<tag>_next<t>`` of ``%<tag>_sum<t>`` (vector<16xf32>) with block ``%block``.
    """

    numbers: Sequence[int]
    before: Sequence[str]
    pack: Sequence[str]
    of_tokens: Callable[[str, int], list[str]]
    of_block: Callable[[str, int], list[str]]


def token_lines(sizes: Sizes, panel: Panel) -> list[str]:
    """Adds the panel's part to the products of all tokens."""
    whole = sizes.rows - sizes.rows % TOKENS
    lines = []
    if whole:
        inner = _tokens("%token", TOKENS, sizes, panel)
        head = f"scf.for %token = %c0 to %c{whole} step %c{TOKENS} {{"
        lines = [head, *within(inner), "}"]
    return [*lines, *(_tokens(f"%c{whole}", sizes.rows % TOKENS, sizes, panel) if sizes.rows % TOKENS else [])]


def _tokens(first: str, count: int, sizes: Sizes, panel: Panel) -> list[str]:
    """Adds the panel's part to the products of ``count`` tokens."""
    tag, every, y = f"t{count}", range(count), f"memref<{sizes.rows * sizes.outputs}xf32>"
    lines = []
    for t in every:
        lines += [
            f"%{tag}_token{t} = arith.addi {first}, %c{t} : index",
            f"%{tag}_line{t} = arith.muli %{tag}_token{t}, %c{sizes.outputs} : index",
            f"%{tag}_y{t} = arith.addi %{tag}_line{t}, %row : index",
            f"%{tag}_before{t} = vector.load %y[%{tag}_y{t}] : {y}, vector<16xf32>",
            f"%{tag}_start{t} = arith.select %begins, %none, %{tag}_before{t} : vector<16xf32>",
            f"%{tag}_xrow{t} = arith.muli %{tag}_token{t}, %c{sizes.columns} : index",
            f"%{tag}_srow{t} = arith.muli %{tag}_token{t}, %c{sizes.columns // BLOCK} : index",
        ]
    lines += panel.of_tokens(tag, count)
    sums = ", ".join(f"%{tag}_sum{t} = %{tag}_start{t}" for t in every)
    kinds = ", ".join(["vector<16xf32>"] * count)
    made = f"%{tag}_made" if count == 1 else f"%{tag}_made:{count}"
    lines.append(f"{made} = scf.for %block = %c0 to %c{sizes.chunk} step %c1 iter_args({sums}) -> ({kinds}) {{")
    lines += within(panel.of_block(tag, count))
    lines += [f"  scf.yield {', '.join(f'%{tag}_next{t}' for t in every)} : {kinds}", "}"]
    for t in every:
        total = f"%{tag}_made" if count == 1 else f"%{tag}_made#{t}"
        lines.append(f"vector.store {total}, %y[%{tag}_y{t}] : {y}, vector<16xf32>")
    return lines


def panel_word(word: int, sizes: Sizes) -> list[str]:
    """Makes ``%p<word>`` vector<64xi8>: four integers of each row, of the panel's block from ``%panel_at`` on."""
    return [
        f"%p_at{word} = arith.addi %panel_at, %c{ROWS * word} : index",
        f"%p32_{word} = vector.load %panel[%p_at{word}] : {sizes.panel}, vector<16xi32>",
        f"%p{word} = vector.bitcast %p32_{word} : vector<16xi32> to vector<64xi8>",
    ]


def token_word(t: int, word: int, source: str, kind: str) -> list[str]:
    """Makes ``%x<t>_<word>`` vector<64xi8>: four integers of a token, from ``%x<t>`` of a buffer on, on all lanes."""
    x = f"%x{t}_{word}"
    return [
        f"{x}_at = arith.addi %x{t}, %c{4 * word} : index",
        f"{x}_four = vector.load {source}[{x}_at] : {kind}, vector<4xi8>",
        f"{x}_word = vector.bitcast {x}_four : vector<4xi8> to vector<1xi32>",
        f"{x}_one = vector.extract {x}_word[0] : i32 from vector<1xi32>",
        f"{x}_all = vector.broadcast {x}_one : i32 to vector<16xi32>",
        f"{x} = vector.bitcast {x}_all : vector<16xi32> to vector<64xi8>",
    ]


def transposed(rows: Sequence[str], tag: str = "") -> tuple[list[str], list[str]]:
    """Transposes sixteen rows of eight words: returns the names of eight vectors of sixteen, and the lines.

    Rows i and i + 8 share a register; each half is then an 8 x 8 matrix, transposed by three rounds of exchanges.
    """
    lines: list[str] = []
    now: list[str] = []
    for i in range(WORDS):
        name = f"%pair{tag}{i}"
        kinds = f"{_WORDS_OF_ROW}, {_WORDS_OF_ROW}"
        lines.append(f"{name} = vector.shuffle {rows[i]}, {rows[i + 8]} {listed(range(16))} : {kinds}")
        now.append(name)
    words, more = turned(now, (1, 2, 4), "i32", f"turn{tag}")
    return words, lines + more


def panel_stores(words: Sequence[str], sizes: Sizes, tag: str = "") -> list[str]:
    """Stores the words of a block to the panel, from ``%panel_at<tag>`` on."""
    lines = []
    for word, name in enumerate(words):
        lines += [
            f"%place{tag}{word} = arith.addi %panel_at{tag}, %c{ROWS * word} : index",
            f"vector.store {name}, %panel[%place{tag}{word}] : {sizes.panel}, vector<16xi32>",
        ]
    return lines
