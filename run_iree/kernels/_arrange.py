"""Dispatches that arrange tokens for products of several tokens; several products of the same x share one."""

from collections.abc import Sequence
from typing import Final

from lang_core import BLOCK
from lang_core.ops import PLANE_BASE
from run_iree.kernels._text import Arrangement, Buffer, CpuKernel, constants, indented, largest_divisor, listed, turned
from run_iree.kernels._tokens import Tokens

_WORKGROUPS: Final = 16  # wanted, for threads of unequal speed
_PAIRS: Final = f"vector<{BLOCK}xi16>"
_BYTES: Final = f"vector<{BLOCK}xi8>"


def arranged_elements(tokens: Tokens, kind: str) -> Arrangement:
    """Arranges x [T, K] of 16 bits: as f32, or pairs of bf16 where words are i32."""
    x = Buffer("given", tokens.rows * tokens.columns, kind)
    given = f"vector<{BLOCK}x{kind}>"
    lines = []
    for t in range(tokens.lanes):
        lines += [
            f"%at{t} = arith.addi %begin{t}, %column : index",
            f"%some{t} = vector.load %given[%at{t}] : {x.memref}, {given}",
            f"%words{t} = {_as_words(tokens, f'%some{t}', given)}",
        ]
    return _arrangement(f"tokens.{kind}.{tokens.kind}", tokens, (x,), 1, [*lines, *_turned_words(tokens)])


def _as_words(tokens: Tokens, value: str, given: str) -> str:
    if tokens.kind == "f32":
        return f"arith.extf {value} : {given} to vector<{BLOCK}xf32>"
    return f"vector.bitcast {value} : {given} to vector<{BLOCK // 2}xi32>"


def arranged_floats(tokens: Tokens, planes: int) -> Arrangement:
    """Arranges q i8 [T, planes, K] and scale f32 [T, K / 32] as f32, integers times their scales."""
    given = _quantized(tokens, planes)
    wide = f"vector<{BLOCK}xf32>"
    lines = _integers(tokens, planes, given)
    for t in range(tokens.lanes):
        lines += [
            f"%float{t} = arith.sitofp %integers{t} : {_PAIRS} to {wide}",
            f"%all{t} = vector.broadcast %scale{t} : f32 to {wide}",
            f"%words{t} = arith.mulf %float{t}, %all{t} : {wide}",
        ]
    return _arrangement(f"tokens.floats.{planes}", tokens, given, planes, [*lines, *_turned_words(tokens)])


def arranged_pairs(tokens: Tokens, planes: int, summed: int = 0) -> Arrangement:
    """Arranges q i8 [T, planes, K] and scale f32 [T, K / 32] as words.

    A part is pairs of i16, then the bits of f32: the scales of its blocks; and where ``summed`` is not 0, for each so
    many columns (16 or 32) the sum of their integers, times the scale.
    """
    given = _quantized(tokens, planes)
    lines = _integers(tokens, planes, given)
    for t in range(tokens.lanes):
        lines.append(f"%words{t} = vector.bitcast %integers{t} : {_PAIRS} to vector<{BLOCK // 2}xi32>")
    lines += [
        *_turned_words(tokens),
        f"%of_part = arith.divui %in_part, %c{BLOCK} : index",
        f"%scale_word = arith.addi %of_part, %c{tokens.part // 2} : index",
        f"%scales = vector.from_elements {', '.join(f'%scale{t}' for t in range(tokens.lanes))} : {tokens.floats}",
        f"%scale_bits = vector.bitcast %scales : {tokens.floats} to {tokens.integers}",
        *_puts(tokens, "scale", "%scale_word", ["%scale_bits"]),
    ]
    if summed:
        sums, more = _sums(tokens, summed)
        lines += [
            *more,
            f"%sums_of = arith.muli %of_part, %c{BLOCK // summed} : index",
            f"%sum_word = arith.addi %sums_of, %c{tokens.part // 2 + tokens.part // BLOCK} : index",
            *_puts(tokens, "sum", "%sum_word", sums),
        ]
    return _arrangement(f"tokens.pairs.{planes}.{summed}", tokens, given, planes, lines)


def _quantized(tokens: Tokens, planes: int) -> tuple[Buffer, Buffer, Buffer]:
    """Returns the buffers of q, scale and total."""
    blocks = tokens.rows * tokens.columns // BLOCK
    q = Buffer("q", tokens.rows * planes * tokens.columns, "i8")
    return q, Buffer("scale", blocks, "f32"), Buffer("total", blocks, "i32")


def _integers(tokens: Tokens, planes: int, given: tuple[Buffer, Buffer, Buffer]) -> list[str]:
    """Makes ``%integers<t>`` vector<32xi16> of a block of each token, and ``%scale<t>``."""
    q, scale, _ = given
    lines = [
        f"%base = arith.constant dense<{PLANE_BASE}> : {_PAIRS}",
        f"%of_row = arith.divui %column, %c{BLOCK} : index",
    ]
    for t in range(tokens.lanes):
        lines += [
            f"%at{t} = arith.addi %begin{t}, %column : index",
            f"%block_row{t} = arith.muli %token{t}, %c{tokens.columns // BLOCK} : index",
            f"%block{t} = arith.addi %block_row{t}, %of_row : index",
            f"%scale{t} = memref.load %scale[%block{t}] : {scale.memref}",
        ]
        for plane in range(planes):
            name = f"{t}_{plane}" if planes > 1 else f"{t}"
            made = f"%plane{name}" if planes > 1 else f"%integers{name}"
            lines += [
                f"%skip{name} = arith.constant {plane * tokens.columns} : index",
                f"%at{name}_q = arith.addi %at{t}, %skip{name} : index",
                f"%some{name} = vector.load %q[%at{name}_q] : {q.memref}, {_BYTES}",
                f"{made} = arith.extsi %some{name} : {_BYTES} to {_PAIRS}",
            ]
        if planes > 1:
            lines += [
                f"%high{t} = arith.muli %plane{t}_0, %base : {_PAIRS}",
                f"%integers{t} = arith.addi %high{t}, %plane{t}_1 : {_PAIRS}",
            ]
    return lines


def _turned_words(tokens: Tokens) -> list[str]:
    """Stores the words ``%words<t>`` of 32 columns, turned; makes ``%turn<group>_..`` of them."""
    per_word = 1 if tokens.kind == "f32" else 2
    count, lanes = BLOCK // per_word, tokens.lanes
    given = f"vector<{count}x{tokens.kind}>"
    lines = [f"%first_word = arith.divui %in_part, %c{per_word} : index"]
    for group in range(count // lanes):
        own = listed(range(lanes * group, lanes * group + lanes))
        for t in range(lanes):
            lines.append(f"%row{group}_{t} = vector.shuffle %words{t}, %words{t} {own} : {given}, {given}")
        names, more = _turn(tokens, group)
        lines += [
            *more,
            f"%word{group} = arith.addi %first_word, %c{lanes * group} : index",
            *_puts(tokens, f"word{group}_", f"%word{group}", names),
        ]
    return lines


def _turn(tokens: Tokens, group: int) -> tuple[list[str], list[str]]:
    rows = [f"%row{group}_{t}" for t in range(tokens.lanes)]
    return turned(rows, tokens.bits, tokens.kind, prefix=f"turn{group}_", lanes=tokens.lanes)


def _sums(tokens: Tokens, summed: int) -> tuple[list[str], list[str]]:
    """Returns the names of registers with the bits of sums of so many columns, times scales, and their lines."""
    words = [name for group in range(BLOCK // 2 // tokens.lanes) for name in _turn(tokens, group)[0]]
    names, lines, kind = [], [f"%half_word = arith.constant dense<16> : {tokens.integers}"], tokens.integers
    for number in range(BLOCK // summed):
        total = ""
        for i in range(summed // 2):
            n, word = f"{number}_{i}", words[number * summed // 2 + i]
            lines += [
                f"%up{n} = arith.shli {word}, %half_word : {kind}",
                f"%even{n} = arith.shrsi %up{n}, %half_word : {kind}",
                f"%odd{n} = arith.shrsi {word}, %half_word : {kind}",
                f"%pair{n} = arith.addi %even{n}, %odd{n} : {kind}",
            ]
            if i:
                lines.append(f"%total{n} = arith.addi {total}, %pair{n} : {kind}")
            total = f"%total{n}" if i else f"%pair{n}"
        names.append(f"%sum_bits{number}")
        lines += [
            f"%total_float{number} = arith.sitofp {total} : {kind} to {tokens.floats}",
            f"%x_sum{number} = arith.mulf %total_float{number}, %scales : {tokens.floats}",
            f"%sum_bits{number} = vector.bitcast %x_sum{number} : {tokens.floats} to {kind}",
        ]
    return names, lines


def _puts(tokens: Tokens, name: str, word: str, registers: Sequence[str]) -> list[str]:
    """Stores successive words, from ``word`` on, of the workgroup's tokens."""
    lines = [
        f"%{name}_skip = arith.muli {word}, %width : index",
        f"%{name}_at0 = arith.addi %part_at, %{name}_skip : index",
    ]
    for i, register in enumerate(registers):
        if i:
            lines.append(f"%{name}_at{i} = arith.addi %{name}_at{i - 1}, %width : index")
        lines.append(f"vector.store {register}, %x[%{name}_at{i}] : {tokens.made.memref}, {tokens.words}")
    return lines


def _arrangement(
    function: str, tokens: Tokens, given: tuple[Buffer, ...], planes: int, lines: Sequence[str]
) -> Arrangement:
    """Builds an arrangement; ``lines`` store 32 columns from ``%column`` on of a register of tokens."""
    rows, columns, part, lanes = tokens.rows, tokens.columns, tokens.part, tokens.lanes
    pieces = largest_divisor(columns // part, max(1, _WORKGROUPS // tokens.registers))
    begins = []
    for t in range(lanes):
        begins += [
            f"%number{t} = arith.addi %first, %c{t} : index",
            f"%token{t} = arith.minui %number{t}, %c{rows - 1} : index",
            f"%begin{t} = arith.muli %token{t}, %c{planes * columns} : index",
        ]
    numbers = [
        *range(1, BLOCK + 1),
        tokens.tile,
        rows - 1,
        columns,
        planes * columns,
        part,
        part // 2,
        columns // BLOCK,
    ]
    numbers += [part // 2 + part // BLOCK, tokens.tiles, tokens.tile * tokens.depth, tokens.part_words]
    numbers += [pieces, columns // pieces]
    body = f"""\
{constants(numbers)}
%register = arith.divui %workgroup, %c{pieces} : index
%piece = arith.remui %workgroup, %c{pieces} : index
%first = arith.muli %register, %c{lanes} : index
%first_column = arith.muli %piece, %c{columns // pieces} : index
%end_column = arith.addi %first_column, %c{columns // pieces} : index
%tile = arith.divui %register, %c2 : index
%odd = arith.remui %register, %c2 : index
%half = arith.muli %odd, %c{lanes} : index
%full = arith.cmpi ult, %tile, %c{tokens.tiles} : index
%width = arith.select %full, %c{tokens.tile}, %c{lanes} : index
%tile_skip = arith.muli %tile, %c{tokens.tile * tokens.depth} : index
%tile_at = arith.addi %tile_skip, %half : index
{indented(begins, 0)}
scf.for %column = %first_column to %end_column step %c{BLOCK} {{
  %part = arith.divui %column, %c{part} : index
  %in_part = arith.remui %column, %c{part} : index
  %part_skip = arith.muli %part, %c{tokens.part_words} : index
  %part_at = arith.addi %part_skip, %tile_at : index
{indented(lines, 2)}
}}
"""
    name = f"{function}.{rows}x{columns}x{part}x{lanes}"
    return Arrangement(name, CpuKernel("tokens", (*given, tokens.made), tokens.registers * pieces, body))
