"""Dispatches that arrange tokens for products of several tokens; several products of the same x share one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lang_core import BLOCK
from lang_core.ops import PLANE_BASE
from run_iree.kernels._lines import Buffer
from run_iree.kernels._text import Arrangement, CpuKernel, constants, indented, largest_divisor, listed, turned
from run_iree.kernels._tokens import Tokens

_WORKGROUPS: Final = 16  # wanted, for threads of unequal speed
_PAIRS: Final = f"vector<{BLOCK}xi16>"
_BYTES: Final = f"vector<{BLOCK}xi8>"


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums of x's integers that go with the words.

    Attributes:
        columns: columns of a sum, 16 or 32.
        times: factor of i32 sums; 0 for f32 sums times x's scales.
    """

    columns: int
    times: int


def arranged_elements(tokens: Tokens, kind: str) -> Arrangement:
    """Arranges x [T, K] of 16 bits: as f32, or pairs of bf16 if words are i32."""
    x = Buffer("given", tokens.rows * tokens.columns, kind)
    given = f"vector<{BLOCK}x{kind}>"
    lines = []
    for t in range(tokens.lanes):
        lines += [
            f"%at{t} = arith.addi %begin{t}, %column : index",
            f"%some{t} = vector.load %given[%at{t}] : {x.memref}, {given}",
            f"%words{t} = {_as_words(tokens, f'%some{t}', given)}",
        ]
    lines += _turned_words(tokens, 1 if tokens.kind == "f32" else 2)
    return _arrangement(f"tokens.{kind}.{tokens.kind}", tokens, (x,), 1, lines)


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
    return _arrangement(f"tokens.floats.{planes}", tokens, given, planes, [*lines, *_turned_words(tokens, 1)])


def arranged_integers(tokens: Tokens, planes: int, per_word: int, sums: Sums | None) -> Arrangement:
    """Arranges q i8 [T, planes, K] and scale f32 [T, K / 32] as words of two i16 or four i8.

    A part is these words, then the bits of f32 scales of its blocks, then the sums.
    """
    given, words = _quantized(tokens, planes), f"vector<{BLOCK // per_word}xi32>"
    lines = _integers(tokens, planes, given)
    for t in range(tokens.lanes):
        source, kind = (f"%integers{t}", _PAIRS) if per_word == 2 else (f"%some{t}", _BYTES)
        lines.append(f"%words{t} = vector.bitcast {source} : {kind} to {words}")
    lines += [
        *_turned_words(tokens, per_word),
        f"%of_part = arith.divui %in_part, %c{BLOCK} : index",
        f"%scales_first = arith.constant {tokens.part // per_word} : index",
        "%scale_word = arith.addi %of_part, %scales_first : index",
        f"%scales = vector.from_elements {', '.join(f'%scale{t}' for t in range(tokens.lanes))} : {tokens.floats}",
        f"%scale_bits = vector.bitcast %scales : {tokens.floats} to {tokens.integers}",
        *_puts(tokens, "scale", "%scale_word", ["%scale_bits"]),
    ]
    if sums is not None:
        names, more = _sums(tokens, per_word, sums)
        lines += [
            *more,
            f"%sums_of = arith.muli %of_part, %c{BLOCK // sums.columns} : index",
            f"%sums_first = arith.constant {tokens.part // per_word + tokens.part // BLOCK} : index",
            "%sum_word = arith.addi %sums_of, %sums_first : index",
            *_puts(tokens, "sum", "%sum_word", names),
        ]
    name = f"tokens.words.{planes}.{per_word}"
    if sums is not None:
        name += f".{sums.columns}.{abs(sums.times)}"
    return _arrangement(name, tokens, given, planes, lines)


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


def _turned_words(tokens: Tokens, per_word: int) -> list[str]:
    """Stores the words ``%words<t>`` of 32 columns, turned."""
    count, own = BLOCK // per_word, _turned_at_once(tokens, per_word)
    given = f"vector<{count}x{tokens.kind}>"
    lines = [f"%first_word = arith.divui %in_part, %c{per_word} : index"]
    for group, names in enumerate(_turned_names(tokens, per_word)):
        for t in range(own):
            # With fewer words than lanes a register has those of two tokens.
            other, first = (t, own * group) if own == tokens.lanes else (t + own, 0)
            lanes = listed(range(first, first + tokens.lanes))
            lines.append(f"%row{group}_{t} = vector.shuffle %words{t}, %words{other} {lanes} : {given}, {given}")
        lines += [
            *_turn(tokens, per_word, group)[1],
            f"%word{group} = arith.addi %first_word, %c{own * group} : index",
            *_puts(tokens, f"word{group}_", f"%word{group}", names),
        ]
    return lines


def _turned_at_once(tokens: Tokens, per_word: int) -> int:
    """Returns how many words are turned at once."""
    return min(BLOCK // per_word, tokens.lanes)


def _turned_names(tokens: Tokens, per_word: int) -> list[list[str]]:
    """Returns the names of the turned words of 32 columns, by groups of those that are turned at once."""
    groups = BLOCK // per_word // _turned_at_once(tokens, per_word)
    return [_turn(tokens, per_word, group)[0] for group in range(groups)]


def _turn(tokens: Tokens, per_word: int, group: int) -> tuple[list[str], list[str]]:
    own = _turned_at_once(tokens, per_word)
    rows, bits = [f"%row{group}_{t}" for t in range(own)], [bit for bit in tokens.bits if bit < own]
    return turned(rows, bits, tokens.kind, prefix=f"turn{group}_", lanes=tokens.lanes)


def _sums(tokens: Tokens, per_word: int, sums: Sums) -> tuple[list[str], list[str]]:
    """Returns the names of registers with the sums, and their lines."""
    words = [name for names in _turned_names(tokens, per_word) for name in names]
    kind, floats, bits, count = tokens.integers, tokens.floats, 32 // per_word, sums.columns // per_word
    lines = [f"%top = arith.constant dense<{32 - bits}> : {kind}"]
    lines += [f"%up{i} = arith.constant dense<{32 - bits - bits * i}> : {kind}" for i in range(per_word)]
    names: list[str] = []
    for number in range(BLOCK // sums.columns):
        total = ""
        for j, word in enumerate(words[number * count : number * count + count]):
            for i in range(per_word):
                n = f"{number}_{j}_{i}"
                lines += [
                    f"%high{n} = arith.shli {word}, %up{i} : {kind}",
                    f"%own{n} = arith.shrsi %high{n}, %top : {kind}",
                ]
                if total:
                    lines.append(f"%sum{n} = arith.addi {total}, %own{n} : {kind}")
                total = f"%sum{n}" if total else f"%own{n}"
        if sums.times:
            lines += [
                f"%times{number} = arith.constant dense<{sums.times}> : {kind}",
                f"%sum_bits{number} = arith.muli {total}, %times{number} : {kind}",
            ]
        else:
            lines += [
                f"%float{number} = arith.sitofp {total} : {kind} to {floats}",
                f"%scaled{number} = arith.mulf %float{number}, %scales : {floats}",
                f"%sum_bits{number} = vector.bitcast %scaled{number} : {floats} to {kind}",
            ]
        names.append(f"%sum_bits{number}")
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
    numbers = [*range(1, BLOCK + 1), tokens.tile, rows - 1, columns, planes * columns, part, columns // BLOCK]
    numbers += [tokens.tiles, tokens.tile * tokens.depth, tokens.part_words, pieces, columns // pieces]
    numbers += [tokens.accumulators, tokens.parts]
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
{indented(_part(tokens), 2)}
  %part_skip = arith.muli %part, %c{tokens.part_words} : index
  %part_at = arith.addi %part_skip, %tile_at : index
{indented(lines, 2)}
}}
"""
    name = f"{function}.{rows}x{columns}x{part}x{lanes}"
    name += f".{tokens.accumulators}" if tokens.accumulators > 1 else ""
    return Arrangement(name, CpuKernel("tokens", (*given, tokens.made), tokens.registers * pieces, body))


def _part(tokens: Tokens) -> list[str]:
    """Makes ``%part`` of ``%column``, which begins a block, and ``%in_part``, its place there."""
    if tokens.accumulators == 1:
        return [
            f"%part = arith.divui %column, %c{tokens.part} : index",
            f"%in_part = arith.remui %column, %c{tokens.part} : index",
        ]
    return [
        f"%block_number = arith.divui %column, %c{BLOCK} : index",
        f"%accumulator = arith.remui %block_number, %c{tokens.accumulators} : index",
        f"%turn = arith.divui %block_number, %c{tokens.accumulators} : index",
        f"%own_column = arith.muli %turn, %c{BLOCK} : index",
        f"%own_part = arith.divui %own_column, %c{tokens.part} : index",
        f"%in_part = arith.remui %own_column, %c{tokens.part} : index",
        f"%parts_before = arith.muli %accumulator, %c{tokens.parts} : index",
        "%part = arith.addi %parts_before, %own_part : index",
    ]
