"""Y = X W^T of several tokens, W packed, in integers: words of two i16 or four i8 are multiplied, summed in 32 bits.

A word is neighbouring integers: a lane has that of its token, and a word of W is on all lanes. Products of columns that
share a scale are summed as i32 and scaled once: 32 products of 8 and 16 bits fit. With AVX2, integers of W of four bits
and x of 8 are multiplied as bytes; sums of 32 products are two sums of 16 bits.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final

from lang_core import BLOCK, Encoding
from run_iree.kernels._arrange import Sums, arranged_integers
from run_iree.kernels._block_dots import fits_pair_dots
from run_iree.kernels._instruction_sets import byte_dot, pair_dot, pairs_added, vnni_dot
from run_iree.kernels._lanes_matmul import ROWS, Products, lanes_matmul, sum_registers, sums_loaded, sums_stored
from run_iree.kernels._lines import Buffer
from run_iree.kernels._packed_parts import packed_rows
from run_iree.kernels._packed_row import weight_buffer
from run_iree.kernels._text import CpuKernel, within
from run_iree.kernels._tokens import Tokens
from run_iree.kernels._unpacked_rows import ROW_SCALES, SCALES, PackedRows

_ROWS_OF: Final = {8: {2: (4, 4, 4, 4), 1: (8, 8)}, 16: {2: (8, 8), 1: (16,)}}
_PAIRS: Final = "vector<16xi16>"
_WAITS: Final = 8  # bits of a weight from which few tokens wait for memory with AVX2


@dataclass(frozen=True, slots=True)
class _Product:
    """Sizes of a product.

    Attributes:
        tokens: arranged tokens.
        parts: parts of W.
        per_word: integers of a word.
        w: weight.
        waits: whether W is so large that it is asked for while others are multiplied.
    """

    tokens: Tokens
    parts: PackedRows
    per_word: int
    w: Buffer
    waits: bool

    @property
    def pairs(self) -> bool:
        """True if sums of products are two of 16 bits each, which ``vpmaddubsw`` makes."""
        return self.per_word == 4 and self.tokens.lanes == 8

    @property
    def dots(self) -> str:
        """Type of a register of sums of products."""
        return _PAIRS if self.pairs else self.tokens.integers

    @property
    def words(self) -> str:
        """Type of a register of words, as an instruction takes it."""
        return f"vector<{self.tokens.lanes * self.per_word}x{self.parts.kind}>"

    def asked_for(self, rows: range) -> list[str]:
        """Prefetches block ``%scaled`` of rows, those sixteen after them: so memory works beside arithmetic."""
        parts = self.parts
        row = self.tokens.columns // parts.columns * parts.stored
        step = self.tokens.accumulators * parts.stored * parts.scaled // parts.columns
        lines = [
            f"%asked_step = arith.constant {step} : index",
            "%asked_skip = arith.muli %scaled, %asked_step : index",
            "%asked_at = arith.addi %part_at, %asked_skip : index",
        ]
        for r in rows:
            lines += [
                f"%asked_row{r} = arith.constant {(ROWS + r) * row} : index",
                f"%asked_at{r} = arith.addi %asked_at, %asked_row{r} : index",
                f"memref.prefetch %w[%asked_at{r}], read, locality<2>, data : {self.w.memref}",
            ]
        return lines

    @property
    def sums(self) -> Sums | None:
        """Sums of x that the minima, or the offset, are multiplied with."""
        if self.parts.minima:
            return Sums(self.parts.scaled, 0)
        return Sums(self.parts.scaled, -self.parts.offset) if self.parts.offset else None


def integers_matmul_kernel(
    sizes: tuple[int, int, int], encoding: Encoding, kind: str, *, planes: int, vnni: bool, accumulators: int = 1
) -> CpuKernel:
    """Builds q i8 [T, planes, K], scale f32, total i32 [T, K / 32], w [N, bytes]: y [T, N].

    Args:
        sizes: T, N, K; N is a multiple of 16.
        encoding: encoding of w.
        kind: dtype of y.
        planes: planes of 8 bits of x's integers.
        vnni: whether to use AVX-512 VNNI, else AVX2.
        accumulators: see ``Tokens``.
    """
    rows, outputs, columns = sizes
    per_word, lanes = 4 if planes == 1 and (vnni or fits_pair_dots(encoding)) else 2, 16 if vnni else 8
    w, kind_of_w = weight_buffer(outputs, columns, encoding), "i8" if per_word == 4 else "i16"
    as_stored, waits = per_word == 4 and not vnni, encoding.bits >= _WAITS and not vnni
    parts = packed_rows(columns, encoding, w, kind_of_w, accumulators, as_stored=as_stored, asks=not waits)
    blocks, with_sums = parts.columns // BLOCK, parts.minima or parts.offset
    depth = parts.columns // per_word + blocks + (parts.columns // parts.scaled if with_sums else 0)
    tokens = Tokens(rows, columns, parts.columns, depth, "i32", lanes, accumulators)
    product = _Product(tokens, parts, per_word, w, waits)
    numbers = (*parts.numbers, 1, per_word, tokens.tile, lanes, parts.scaled // per_word)
    products = Products(
        "avx512-vnni-matmul" if vnni else "avx2-matmul",
        parts.stored,
        (*numbers, parts.columns // parts.scaled, BLOCK // parts.scaled),
        (
            *parts.before,
            f"%zero = arith.constant dense<0> : {product.dots}",
            f"%ones = arith.constant dense<1> : {_PAIRS}",
        ),
        parts.lines,
        _ROWS_OF[lanes],
        partial(_products, product),
    )
    arrangement = arranged_integers(tokens, planes, per_word, product.sums)
    return lanes_matmul(tokens, w, Buffer("y", rows * outputs, kind), products, arrangement)


def _products(product: _Product, count: int, rows: range) -> list[str]:
    tokens, parts = product.tokens, product.parts
    sums, words = sum_registers(count, rows), parts.scaled // product.per_word
    integers, floats = (", ".join([kind] * len(sums)) for kind in (product.dots, tokens.floats))
    begin = "%start{}" if parts.offset and not product.pairs else "%zero"
    dots = ", ".join(f"%dot{r}_{half} = {begin.format(half)}" for r, half in sums)
    carried = ", ".join(f"%sum{r}_{half} = %before{r}_{half}" for r, half in sums)
    made, total = f"%made{rows.start}", f"%total{rows.start}"
    # The body of the inner loop is one word: of more, the compiler keeps more in registers than there are.
    return [
        *(sums_loaded(tokens, f"before{r}_{half}", r, half) for r, half in sums),
        f"{total}:{len(sums)} = scf.for %scaled = %c0 to %c{parts.columns // parts.scaled} step %c1 "
        f"iter_args({carried}) -> ({floats}) {{",
        f"  %first_word = arith.muli %scaled, %c{words} : index",
        *within(product.asked_for(rows) if product.waits else []),
        *within(_extra(product, "start", "%scaled", 1, count, tokens.integers) if parts.offset else []),
        f"  {made}:{len(sums)} = scf.for %in_block = %c0 to %c{words} step %c1 iter_args({dots}) -> ({integers}) {{",
        "    %word = arith.addi %first_word, %in_block : index",
        f"    %column = arith.muli %word, %c{product.per_word} : index",
        f"    %x_skip = arith.muli %word, %c{count * tokens.lanes} : index",
        "    %x_at = arith.addi %x_first, %x_skip : index",
        *within(_word(product, count, rows), 4),
        f"    scf.yield {', '.join(f'%next{r}_{half}' for r, half in sums)} : {integers}",
        "  }",
        *within(_scaled(product, count, rows, made)),
        f"  scf.yield {', '.join(f'%after{r}_{half}' for r, half in sums)} : {floats}",
        "}",
        *(sums_stored(tokens, f"{total}#{i}", r, half) for i, (r, half) in enumerate(sums)),
    ]


def _word(product: _Product, count: int, rows: range) -> list[str]:
    """Multiplies word ``%word`` of the tile by that of each row."""
    tokens, parts, per_word = product.tokens, product.parts, product.per_word
    lines = [line for half in range(count) for line in _loaded("x", half, tokens, product.words)]
    stored = f"vector<{per_word}x{parts.kind}>"
    for r in rows:
        lines += [
            f"%w_skip{r} = arith.constant {r * parts.stride} : index",
            f"%w_at{r} = arith.addi %column, %w_skip{r} : index",
            f"%some{r} = vector.load %rows[%w_at{r}] : {parts.rows}, {stored}",
            f"%one{r} = vector.bitcast %some{r} : {stored} to vector<1xi32>",
            f"%number{r} = vector.extract %one{r}[0] : i32 from vector<1xi32>",
            f"%all{r} = vector.broadcast %number{r} : i32 to {tokens.integers}",
            f"%w{r} = vector.bitcast %all{r} : {tokens.integers} to {product.words}",
        ]
        for half in range(count):
            lines += _added(product, f"{r}_{half}", f"%w{r}", f"%x{half}")
    return lines


def _added(product: _Product, n: str, w: str, x: str) -> list[str]:
    """Makes ``%next<n>`` of ``%dot<n>`` and the products of a word."""
    if product.pairs:
        return [f"%product{n} = {byte_dot(w, x)}", f"%next{n} = arith.addi %dot{n}, %product{n} : {_PAIRS}"]
    if product.per_word == 4:
        return [f"%next{n} = {vnni_dot(f'%dot{n}', w, x)}"]
    if product.tokens.lanes == 16:
        return [f"%next{n} = {pairs_added(f'%dot{n}', w, x)}"]
    return [
        f"%product{n} = {pair_dot(w, x)}",
        f"%next{n} = arith.addi %dot{n}, %product{n} : {product.tokens.integers}",
    ]


def _loaded(name: str, half: int, tokens: Tokens, kind: str) -> list[str]:
    """Makes ``%<name><half>``, a register of the tile's words at ``%<name>_at``, cast to a type."""
    return [
        f"%{name}_half{half} = arith.constant {tokens.lanes * half} : index",
        f"%{name}_at{half} = arith.addi %{name}_at, %{name}_half{half} : index",
        f"%{name}_bits{half} = vector.load %x[%{name}_at{half}] : {tokens.made.memref}, {tokens.integers}",
        f"%{name}{half} = vector.bitcast %{name}_bits{half} : {tokens.integers} to {kind}",
    ]


def _extra(product: _Product, name: str, number: str, group: int, count: int, kind: str) -> list[str]:
    """Makes ``%<name><half>`` from the values behind a part's words.

    X's scales by blocks (group 0), then its sums (1).
    """
    tokens, parts = product.tokens, product.parts
    first = parts.columns // product.per_word + group * (parts.columns // BLOCK)
    lines = [
        f"%{name}_first = arith.constant {first} : index",
        f"%{name}_word = arith.addi {number}, %{name}_first : index",
        f"%{name}_skip = arith.muli %{name}_word, %c{count * tokens.lanes} : index",
        f"%{name}_at = arith.addi %x_first, %{name}_skip : index",
    ]
    return lines + [line for half in range(count) for line in _loaded(name, half, tokens, kind)]


def _scaled(product: _Product, count: int, rows: range, made: str) -> list[str]:
    """Adds integer sums, times the scales of x and W, and the minima times x's sums, to the sums."""
    tokens, parts = product.tokens, product.parts
    sums, floats = sum_registers(count, rows), tokens.floats
    lines = [f"%block = arith.divui %scaled, %c{BLOCK // parts.scaled} : index"]
    lines += _extra(product, "xs", "%block", 0, count, floats)
    lines += _extra(product, "xt", "%scaled", 1, count, floats) if parts.minima else []
    for r in rows:
        lines += _spread(tokens, "scale", r, 0)
        lines += _spread(tokens, "minimum", r, parts.minima) if parts.minima else []
    for i, (r, half) in enumerate(sums):
        n, before, dot = f"{r}_{half}", f"%sum{r}_{half}", f"{made}#{i}"
        if product.pairs:
            lines.append(f"%joined{n} = {pair_dot(dot, '%ones')}")
            dot = f"%joined{n}"
            if parts.offset:
                lines.append(f"%whole{n} = arith.addi %joined{n}, %start{half} : {tokens.integers}")
                dot = f"%whole{n}"
        lines += [
            f"%float{n} = arith.sitofp {dot} : {tokens.integers} to {floats}",
            f"%both{n} = arith.mulf %scale{r}, %xs{half} : {floats}",
        ]
        if parts.minima:
            lines.append(f"%less{n} = math.fma %minimum{r}, %xt{half}, {before} : {floats}")
            before = f"%less{n}"
        lines.append(f"%after{n} = math.fma %float{n}, %both{n}, {before} : {floats}")
    return lines


def _spread(tokens: Tokens, name: str, r: int, place: int) -> list[str]:
    """Makes ``%<name><r>``, a row's scale or minimum on all lanes."""
    return [
        f"%{name}_skip{r} = arith.constant {ROW_SCALES * r + place} : index",
        f"%{name}_at{r} = arith.addi %scaled, %{name}_skip{r} : index",
        f"%{name}_one{r} = memref.load %scales[%{name}_at{r}] : {SCALES}",
        f"%{name}{r} = vector.broadcast %{name}_one{r} : f32 to {tokens.floats}",
    ]
