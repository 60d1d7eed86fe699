"""Y = X W^T of several tokens in f32, W of 16 bits or packed; or in pairs of bf16 if a CPU multiplies these.

A word is an f32, or two neighbouring bf16: a lane has that of its token, and a word of W is on all lanes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from lang_core import Encoding
from run_iree.kernels._arrange import arranged_elements, arranged_floats
from run_iree.kernels._instruction_sets import bf16_dot
from run_iree.kernels._lanes_matmul import ROWS, Products, lanes_matmul, sum_registers, sums_loaded, sums_stored
from run_iree.kernels._lines import Buffer
from run_iree.kernels._packed_parts import packed_rows
from run_iree.kernels._packed_row import weight_buffer
from run_iree.kernels._text import CpuKernel, largest_divisor, prefetches, scratch, within
from run_iree.kernels._tokens import Tokens

_NAMES: Final = {8: "fma-matmul", 16: "avx512-matmul"}
_STEP: Final = 32  # columns, of which K is a multiple
_PART: Final = 128  # words of a part, at most
_PAD: Final = 8  # words between rows in the scratch, so that they do not lie a power of two apart
_AT_ONCE: Final = {8: 4, 16: 2}  # words in the body of the inner loop, by lanes
_ROWS_OF: Final = {8: {2: (6, 6, 4), 1: (8, 8)}, 16: {2: (8, 8), 1: (16,)}}


@dataclass(frozen=True, slots=True)
class _Words:
    """Words of W on the stack.

    Attributes:
        kind: f32, or i32 for pairs of bf16.
        stride: words from one row to the next.
    """

    kind: str
    stride: int

    @property
    def rows(self) -> str:
        """Type of ``%rows``."""
        return f"memref<{ROWS * self.stride}x{self.kind}>"


def linear_matmul_kernel(
    sizes: tuple[int, int, int], kinds: tuple[str, str], *, lanes: int, pairs: bool = False
) -> CpuKernel:
    """Builds x [T, K], w [N, K] of 16 bits: y [T, N].

    Args:
        sizes: T, N, K; N is a multiple of 16, K of 32.
        kinds: dtype of x and w, bf16 or f16; dtype of y, one of these or f32.
        lanes: lanes of a register.
        pairs: whether to use ``vdpbf16ps``; for bf16 and 16 lanes only.
    """
    (rows, outputs, columns), (kind, made) = sizes, kinds
    w, per_word = Buffer("w", outputs * columns, kind), 2 if pairs else 1
    part = _STEP * largest_divisor(columns // _STEP, _PART * per_word // _STEP)
    words = _Words("i32" if pairs else "f32", part // per_word + _PAD)
    tokens = Tokens(rows, columns, part, part // per_word, words.kind, lanes)
    ahead, given = ROWS * columns, f"vector<{_STEP}x{kind}>"
    change, stored = "vector.bitcast" if pairs else "arith.extf", f"vector<{_STEP // per_word}x{words.kind}>"
    unpack = [
        f"%to = arith.muli %r, %c{words.stride} : index",
        f"scf.for %column = %c0 to %c{part} step %c{_STEP} {{",
        "  %w_at = arith.addi %at, %column : index",
        *within(prefetches("soon", "%w_at", w, [ahead], locality=2)),
        f"  %given = vector.load %w[%w_at] : {w.memref}, {given}",
        f"  %wide = {change} %given : {given} to {stored}",
        f"  %in_part = arith.divui %column, %c{per_word} : index",
        "  %place = arith.addi %to, %in_part : index",
        f"  vector.store %wide, %rows[%place] : {words.rows}, {stored}",
        "}",
    ]
    numbers = [_STEP, part, words.stride, ahead, per_word]
    name = "avx512-bf16-matmul" if pairs else _NAMES[lanes]
    products = _products(name, tokens, words, part, numbers, [scratch("rows", words.rows)], unpack)
    return lanes_matmul(tokens, w, Buffer("y", rows * outputs, made), products, arranged_elements(tokens, kind))


def floats_matmul_kernel(
    sizes: tuple[int, int, int], encoding: Encoding, kind: str, *, planes: int, lanes: int
) -> CpuKernel:
    """Builds q i8 [T, planes, K], scale f32, total i32 [T, K / 32], w [N, bytes]: y [T, N].

    Args:
        sizes: T, N, K; N is a multiple of 16.
        encoding: encoding of w.
        kind: dtype of y.
        planes: planes of 8 bits of x's integers.
        lanes: lanes of a register.
    """
    rows, outputs, columns = sizes
    w = weight_buffer(outputs, columns, encoding)
    parts = packed_rows(columns, encoding, w, "f32")
    tokens = Tokens(rows, columns, parts.columns, parts.columns, "f32", lanes)
    words = _Words("f32", parts.stride)
    products = _products(_NAMES[lanes], tokens, words, parts.stored, parts.numbers, parts.before, parts.lines)
    return lanes_matmul(tokens, w, Buffer("y", rows * outputs, kind), products, arranged_floats(tokens, planes))


def _products(
    name: str,
    tokens: Tokens,
    words: _Words,
    stored: int,
    numbers: Sequence[int],
    before: Sequence[str],
    unpack: Sequence[str],
) -> Products:
    more = (_AT_ONCE[tokens.lanes], tokens.tile, tokens.lanes, tokens.depth)
    lines = partial(_multiplied, tokens, words)
    return Products(name, stored, (*numbers, *more), before, unpack, _ROWS_OF[tokens.lanes], lines)


def _multiplied(tokens: Tokens, words: _Words, count: int, rows: range) -> list[str]:
    sums, once = sum_registers(count, rows), _AT_ONCE[tokens.lanes]
    kinds = ", ".join([tokens.floats] * len(sums))
    carried = ", ".join(f"%sum{r}_{half}_0 = %before{r}_{half}" for r, half in sums)
    made = f"%made{rows.start}"
    return [
        *(sums_loaded(tokens, f"before{r}_{half}", r, half) for r, half in sums),
        f"{made}:{len(sums)} = scf.for %word = %c0 to %c{tokens.depth} step %c{once} "
        f"iter_args({carried}) -> ({kinds}) {{",
        f"  %x_skip = arith.muli %word, %c{count * tokens.lanes} : index",
        "  %x_at = arith.addi %x_first, %x_skip : index",
        *within([line for i in range(once) for line in _word(tokens, words, i, count, rows)]),
        f"  scf.yield {', '.join(f'%sum{r}_{half}_{once}' for r, half in sums)} : {kinds}",
        "}",
        *(sums_stored(tokens, f"{made}#{i}", r, half) for i, (r, half) in enumerate(sums)),
    ]


def _word(tokens: Tokens, words: _Words, i: int, count: int, rows: range) -> list[str]:
    """Multiplies word ``%word`` + i of the tile by that of each row."""
    lines, lanes, pairs = [], tokens.lanes, words.kind == "i32"
    paired = f"vector<{2 * lanes}xbf16>"
    for half in range(count):
        x = f"x{i}_{half}"
        lines += [
            f"%{x}_skip = arith.constant {(i * count + half) * lanes} : index",
            f"%{x}_at = arith.addi %x_at, %{x}_skip : index",
            f"%{x}_word = vector.load %x[%{x}_at] : {tokens.made.memref}, {tokens.words}",
        ]
        if pairs:
            lines.append(f"%{x} = vector.bitcast %{x}_word : {tokens.words} to {paired}")
    for r in rows:
        n = f"{i}_{r}"
        lines += [
            f"%w_skip{n} = arith.constant {r * words.stride + i} : index",
            f"%w_at{n} = arith.addi %word, %w_skip{n} : index",
            f"%one{n} = memref.load %rows[%w_at{n}] : {words.rows}",
            f"%all{n} = vector.broadcast %one{n} : {words.kind} to {tokens.words}",
        ]
        if pairs:
            lines.append(f"%w{n} = vector.bitcast %all{n} : {tokens.words} to {paired}")
        for half in range(count):
            before, after = f"%sum{r}_{half}_{i}", f"%sum{r}_{half}_{i + 1}"
            if pairs:
                lines.append(f"{after} = {bf16_dot(before, f'%w{n}', f'%x{i}_{half}')}")
            else:
                lines.append(f"{after} = math.fma %all{n}, %x{i}_{half}_word, {before} : {tokens.floats}")
    return lines
