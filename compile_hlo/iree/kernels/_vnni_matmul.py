"""Y = X W^T of several tokens, for CPUs with AVX-512 VNNI.

Sixteen rows of W at a time are turned into a panel: in each register four neighbouring integers of all sixteen, so that
``vpdpbusd`` with four integers of a token, the same on every lane, advances sixteen products, and a whole block is
summed before it is scaled. A panel is read by eight tokens together.
"""

from collections.abc import Sequence
from typing import Final

from compile_hlo.iree.kernels._packed_row import half, packed_buffers, stored_block, unsigned_offset, wanted_workgroups
from compile_hlo.iree.kernels._text import Kernel, constants, indented, largest_divisor, listed, own_rows, share
from compile_hlo.iree.kernels._vnni import vnni_dot
from lang_core import BLOCK, Encoding

NAME: Final = "avx512-vnni-matmul"
ROWS: Final = 16  # of W in a panel
_TOKENS: Final = 8  # that share what is loaded of a panel
_CHUNK_BLOCKS: Final = 32  # of K in a panel, at most: 18 KiB of stack
_WORDS: Final = BLOCK // 4


def matmul_kernel(rows: int, outputs: int, columns: int, encoding: Encoding) -> Kernel:
    """q i8 [rows, columns], scale f32, total i32 [rows, columns / 32], w [outputs, bytes]: y f32 [rows, outputs].

    ``outputs`` is a multiple of 16.
    """
    blocks = columns // BLOCK
    chunk = largest_divisor(blocks, _CHUNK_BLOCKS)
    each, workgroups = share(outputs, ROWS, wanted_workgroups(outputs, columns, encoding))
    row_bytes = blocks * encoding.block_bytes
    numbers = [1, 2, 4, 16, BLOCK, encoding.block_bytes, row_bytes, columns, blocks, chunk, each, outputs, _TOKENS]
    numbers += [*range(ROWS), rows - rows % _TOKENS, ROWS * _WORDS, *(ROWS * word for word in range(_WORDS))]
    numbers += [4 * word for word in range(_WORDS)]
    products = _token_loop(rows, outputs, columns, chunk) if rows >= _TOKENS else []
    if rows % _TOKENS:
        products += _tokens(f"%c{rows - rows % _TOKENS}", rows % _TOKENS, rows, outputs, columns, chunk)
    body = f"""\
{constants(numbers)}
%flip = arith.constant dense<-128> : vector<32xi8>
%nibble = arith.constant dense<15> : vector<16xi8>
%four = arith.constant dense<4> : vector<16xi8>
%minus = arith.constant {-unsigned_offset(encoding)} : i32
%none = arith.constant dense<0.0> : vector<16xf32>
%panel = memref.alloca() : memref<{chunk * _WORDS * ROWS}xi32>
%w_scale = memref.alloca() : memref<{chunk * ROWS}xf32>
{own_rows(each, outputs)}
scf.for %row = %first to %end step %c{ROWS} {{
  scf.for %chunk = %c0 to %c{blocks} step %c{chunk} {{
    scf.for %block = %c0 to %c{chunk} step %c1 {{
{indented(_pack(outputs, row_bytes, chunk, encoding), 6)}
    }}
    %begins = arith.cmpi eq, %chunk, %c0 : index
{indented(products, 4)}
  }}
}}
"""
    return Kernel(NAME, packed_buffers(rows, outputs, columns, encoding), workgroups, body)


def _pack(outputs: int, row_bytes: int, chunk: int, encoding: Encoding) -> list[str]:
    """Block ``%block`` of the chunk of sixteen rows, as eight registers of the panel and one of scales."""
    w = f"memref<{outputs * row_bytes}xi8>"
    lines = [
        "%of_row = arith.addi %chunk, %block : index",
        f"%in_row = arith.muli %of_row, %c{encoding.block_bytes} : index",
    ]
    for r in range(ROWS):
        lines += [
            f"%row{r} = arith.addi %row, %c{r} : index",
            f"%row_at{r} = arith.muli %row{r}, %c{row_bytes} : index",
            f"%at{r} = arith.addi %row_at{r}, %in_row : index",
            f"%q_at{r} = arith.addi %at{r}, %c2 : index",
            *half(f"half{r}", f"%at{r}", w),
            f"%one_scale{r} = vector.extract %half{r}[0] : f16 from vector<1xf16>",
            *_unsigned_block(encoding, r, w),
            f"%words{r} = vector.bitcast %unsigned{r} : vector<32xi8> to vector<8xi32>",
        ]
    scales = ", ".join(f"%one_scale{r}" for r in range(ROWS))
    lines += [
        f"%scales16 = vector.from_elements {scales} : vector<16xf16>",
        "%scales32 = arith.extf %scales16 : vector<16xf16> to vector<16xf32>",
        "%scales_at = arith.muli %block, %c16 : index",
        f"vector.store %scales32, %w_scale[%scales_at] : memref<{chunk * ROWS}xf32>, vector<16xf32>",
        f"%panel_at = arith.muli %block, %c{ROWS * _WORDS} : index",
    ]
    names = [f"%words{r}" for r in range(ROWS)]
    turned, more = _transposed(names)
    lines += more
    for word, name in enumerate(turned):
        lines += [
            f"%place{word} = arith.addi %panel_at, %c{ROWS * word} : index",
            f"vector.store {name}, %panel[%place{word}] : memref<{chunk * _WORDS * ROWS}xi32>, vector<16xi32>",
        ]
    return lines


def _unsigned_block(encoding: Encoding, r: int, w: str) -> list[str]:
    if encoding.bits == 4:
        return stored_block(encoding, f"%q_at{r}", f"unsigned{r}", w)
    return [
        *stored_block(encoding, f"%q_at{r}", f"signed{r}", w),
        f"%unsigned{r} = arith.xori %signed{r}, %flip : vector<32xi8>",
    ]


def _transposed(rows: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names of eight vectors of sixteen words, word by word, of sixteen of eight; and the lines that make them.

    Rows i and i + 8 share a register; each half is then an 8 x 8 matrix, turned by three rounds of exchanges.
    """
    lines: list[str] = []
    now: list[str] = []
    for i in range(_WORDS):
        name = f"%pair{i}"
        lines.append(
            f"{name} = vector.shuffle {rows[i]}, {rows[i + 8]} {listed(range(16))} : vector<8xi32>, vector<8xi32>"
        )
        now.append(name)
    for stage, bit in enumerate((1, 2, 4)):
        made = list(now)
        for i in range(_WORDS):
            if i & bit:
                continue
            a, b = now[i], now[i | bit]
            # Lane c of the other operand is number 16 + c.
            low = [c if not c & bit else 16 + (c ^ bit) for c in range(16)]
            high = [(c | bit) if not c & bit else 16 + c for c in range(16)]
            for place, mask in ((i, low), (i | bit, high)):
                made[place] = f"%turn{stage}_{place}"
                lines.append(f"{made[place]} = vector.shuffle {a}, {b} {listed(mask)} : vector<16xi32>, vector<16xi32>")
        now = made
    return now, lines


def _token_loop(rows: int, outputs: int, columns: int, chunk: int) -> list[str]:
    inner = _tokens("%token", _TOKENS, rows, outputs, columns, chunk)
    head = f"scf.for %token = %c0 to %c{rows - rows % _TOKENS} step %c{_TOKENS} {{"
    return [head, *(f"  {line}" for line in inner), "}"]


def _tokens(first: str, count: int, rows: int, outputs: int, columns: int, chunk: int) -> list[str]:
    """The chunk's part of the products of ``count`` tokens."""
    tag, every, y = f"t{count}", range(count), f"memref<{rows * outputs}xf32>"
    lines = []
    for t in every:
        lines += [
            f"%{tag}_token{t} = arith.addi {first}, %c{t} : index",
            f"%{tag}_line{t} = arith.muli %{tag}_token{t}, %c{outputs} : index",
            f"%{tag}_y{t} = arith.addi %{tag}_line{t}, %row : index",
            f"%{tag}_before{t} = vector.load %y[%{tag}_y{t}] : {y}, vector<16xf32>",
            f"%{tag}_start{t} = arith.select %begins, %none, %{tag}_before{t} : vector<16xf32>",
            f"%{tag}_xrow{t} = arith.muli %{tag}_token{t}, %c{columns} : index",
            f"%{tag}_srow{t} = arith.muli %{tag}_token{t}, %c{columns // BLOCK} : index",
        ]
    sums = ", ".join(f"%{tag}_sum{t} = %{tag}_start{t}" for t in every)
    kinds = ", ".join(["vector<16xf32>"] * count)
    made = f"%{tag}_made" if count == 1 else f"%{tag}_made:{count}"
    lines.append(f"{made} = scf.for %block = %c0 to %c{chunk} step %c1 iter_args({sums}) -> ({kinds}) {{")
    lines += [f"  {line}" for line in _block_lines(tag, count, rows, columns, chunk)]
    lines += [f"  scf.yield {', '.join(f'%{tag}_next{t}' for t in every)} : {kinds}", "}"]
    for t in every:
        found = f"%{tag}_made" if count == 1 else f"%{tag}_made#{t}"
        lines.append(f"vector.store {found}, %y[%{tag}_y{t}] : {y}, vector<16xf32>")
    return lines


def _block_lines(tag: str, count: int, rows: int, columns: int, chunk: int) -> list[str]:
    """One block of sixteen rows times that of each token."""
    blocks = columns // BLOCK
    lines = [
        "%of_row = arith.addi %chunk, %block : index",
        f"%x_at = arith.muli %of_row, %c{BLOCK} : index",
        f"%panel_at = arith.muli %block, %c{ROWS * _WORDS} : index",
        "%scales_at = arith.muli %block, %c16 : index",
        f"%ws = vector.load %w_scale[%scales_at] : memref<{chunk * ROWS}xf32>, vector<16xf32>",
    ]
    for t in range(count):
        lines += [
            f"%x{t} = arith.addi %{tag}_xrow{t}, %x_at : index",
            f"%s{t} = arith.addi %{tag}_srow{t}, %of_row : index",
            f"%total{t} = memref.load %total[%s{t}] : memref<{rows * blocks}xi32>",
            f"%offset{t} = arith.muli %total{t}, %minus : i32",
            f"%dot{t}_0 = vector.broadcast %offset{t} : i32 to vector<16xi32>",
        ]
    for word in range(_WORDS):
        lines += [
            f"%p_at{word} = arith.addi %panel_at, %c{ROWS * word} : index",
            f"%p32_{word} = vector.load %panel[%p_at{word}] : memref<{chunk * _WORDS * ROWS}xi32>, vector<16xi32>",
            f"%p{word} = vector.bitcast %p32_{word} : vector<16xi32> to vector<64xi8>",
        ]
        for t in range(count):
            x = f"%x{t}_{word}"
            lines += [
                f"{x}_at = arith.addi %x{t}, %c{4 * word} : index"
                if word
                else f"{x}_at = arith.addi %x{t}, %c0 : index",
                f"{x}_four = vector.load %q[{x}_at] : memref<{rows * columns}xi8>, vector<4xi8>",
                f"{x}_word = vector.bitcast {x}_four : vector<4xi8> to vector<1xi32>",
                f"{x}_one = vector.extract {x}_word[0] : i32 from vector<1xi32>",
                f"{x}_all = vector.broadcast {x}_one : i32 to vector<16xi32>",
                f"{x} = vector.bitcast {x}_all : vector<16xi32> to vector<64xi8>",
                f"%dot{t}_{word + 1} = {vnni_dot(f'%dot{t}_{word}', f'%p{word}', x)}",
            ]
    for t in range(count):
        lines += [
            f"%float{t} = arith.sitofp %dot{t}_{_WORDS} : vector<16xi32> to vector<16xf32>",
            f"%xs{t} = memref.load %scale[%s{t}] : memref<{rows * blocks}xf32>",
            f"%xs_all{t} = vector.broadcast %xs{t} : f32 to vector<16xf32>",
            f"%both{t} = arith.mulf %ws, %xs_all{t} : vector<16xf32>",
            f"%{tag}_next{t} = math.fma %float{t}, %both{t}, %{tag}_sum{t} : vector<16xf32>",
        ]
    return lines
