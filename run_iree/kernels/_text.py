"""How kernels are written: functions over buffers, in MLIR's vector dialect, that a module calls as dispatches."""

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

LINE: Final = 64  # bytes that memory gives at once
_EXECUTABLE: Final = """\
  stream.executable private @{symbol} {{
    stream.executable.export public @{entry} workgroups() -> (index, index, index) {{
      %x = arith.constant {workgroups} : index
      %one = arith.constant 1 : index
      stream.return %x, %one, %one : index, index, index
    }}
    builtin.module {{
      func.func @{entry}({bindings}) {{
        %c0 = arith.constant 0 : index
        %workgroup = stream.dispatch.workgroup.id[0] : index
{views}
{body}
        return
      }}
    }}
  }}
"""


@dataclass(frozen=True, slots=True)
class Buffer:
    """A kernel's argument or result.

    Attributes:
        name: of its memref in the kernel's text, without the ``%``.
        elements: how many it has.
        kind: of the elements.
    """

    name: str
    elements: int
    kind: str

    @property
    def memref(self) -> str:
        """The type of a flat view."""
        return f"memref<{self.elements}x{self.kind}>"


@dataclass(frozen=True, slots=True)
class Arrangement:
    """A dispatch ahead of a kernel, of all its arguments but the last; what it makes takes their place.

    Attributes:
        function: its name; products of one x share it.
        kernel: with one result.
    """

    function: str
    kernel: "Kernel"


@dataclass(frozen=True, slots=True)
class Kernel:
    """A dispatch.

    Attributes:
        name: what kernel_config.json says.
        buffers: arguments, then results.
        workgroups: how many run; each finds its number in ``%workgroup``.
        body: ops on memrefs that are called as the buffers are; ``%c0`` is there.
        arrangement: what runs before, if anything; the buffers are those of what it leaves.
    """

    name: str
    buffers: tuple[Buffer, ...]
    workgroups: int
    body: str
    arrangement: Arrangement | None = None

    def executable(self, function: str) -> str:
        """The module-level text of the kernel that serves a function of this name."""
        bindings = ", ".join(f"%b_{buffer.name}: !stream.binding" for buffer in self.buffers)
        view = "        %{name} = stream.binding.subspan %b_{name}[%c0] : !stream.binding -> {memref}"
        views = "\n".join(view.format(name=buffer.name, memref=buffer.memref) for buffer in self.buffers)
        return _EXECUTABLE.format(
            symbol=f"kernel.{function}",
            entry=entry_name(function),
            workgroups=self.workgroups,
            bindings=bindings,
            views=views,
            body=textwrap.indent(textwrap.dedent(self.body), "        "),
        )


def entry_name(function: str) -> str:
    """The name of a kernel's function in machine code; executables are linked into one library."""
    return function.replace(".", "_")


def constants(numbers: Sequence[int]) -> str:
    """Index constants ``%c<number>``, each once."""
    return "\n".join(f"%c{number} = arith.constant {number} : index" for number in sorted({*numbers} - {0}))


def listed(numbers: Sequence[int]) -> str:
    """A shuffle's mask."""
    return f"[{', '.join(map(str, numbers))}]"


def turned(
    registers: Sequence[str], bits: Iterable[int], kind: str, prefix: str = "turn", lanes: int = 16
) -> tuple[list[str], list[str]]:
    """Exchanges lanes of vectors: a round for each bit, of a lane's number and a register's.

    After the rounds of bits 1, 2, 4 and 8 lane c of register r is what lane r of register c was. With half as many
    registers as lanes and without the last round the same is so within each half.

    Args:
        registers: their names.
        bits: of each round.
        kind: of the elements.
        prefix: of the new names.
        lanes: of a register.

    Returns:
        The new names, and the lines that make them.
    """
    lines: list[str] = []
    now = list(registers)
    vector = f"vector<{lanes}x{kind}>"
    for bit in bits:
        made = list(now)
        for i in range(len(now)):
            if i & bit:
                continue
            a, b = now[i], now[i | bit]
            # Lane c of the other operand is number lanes + c.
            low = [c if not c & bit else lanes + (c ^ bit) for c in range(lanes)]
            high = [(c | bit) if not c & bit else lanes + c for c in range(lanes)]
            for place, mask in ((i, low), (i | bit, high)):
                made[place] = f"%{prefix}{bit}_{place}"
                lines.append(f"{made[place]} = vector.shuffle {a}, {b} {listed(mask)} : {vector}, {vector}")
        now = made
    return now, lines


def asked(name: str, base: str, buffer: Buffer, ahead: Iterable[int], locality: int = 3) -> list[str]:
    """Lines that have the cache read what lies so many elements after an index; with locality 2 a larger one."""
    lines = []
    for number, place in enumerate(ahead):
        lines += [
            f"%{name}{number} = arith.addi {base}, %c{place} : index",
            f"memref.prefetch %{buffer.name}[%{name}{number}], read, locality<{locality}>, data : {buffer.memref}",
        ]
    return lines


def within(lines: Iterable[str], by: int = 2) -> list[str]:
    """Lines in a loop."""
    return [" " * by + line for line in lines]


def indented(lines: Iterable[str], by: int) -> str:
    """Lines as a text of their own indentation."""
    return "\n".join(within(lines, by))


def largest_divisor(total: int, most: int) -> int:
    """Of ``total``, not above ``most``.

    >>> largest_divisor(24, 7)
    6
    """
    return next(size for size in range(min(most, total), 0, -1) if total % size == 0)


def wanted_workgroups(weight_bytes: int) -> int:
    """Enough for threads that are not equally fast, and for few of them to end at about the same time."""
    return max(16, min(128, weight_bytes >> 16))


def share(total: int, unit: int, wanted: int) -> tuple[int, int]:
    """How ``total`` rows are shared out: (rows of a workgroup, a multiple of ``unit``; workgroups).

    >>> share(5632, 4, 16), share(10, 4, 16)
    ((352, 16), (4, 3))
    """
    each = -(-total // wanted)
    each = -(-each // unit) * unit
    return each, -(-total // each)


def stored(value: str, place: str, buffer: Buffer) -> list[str]:
    """Lines that put an f32, without its ``%``, into a buffer of f32, or rounded into one of fewer bits."""
    if buffer.kind == "f32":
        return [f"memref.store %{value}, %{buffer.name}[{place}] : {buffer.memref}"]
    return [
        f"%{value}_rounded = arith.truncf %{value} : f32 to {buffer.kind}",
        f"memref.store %{value}_rounded, %{buffer.name}[{place}] : {buffer.memref}",
    ]


def total(name: str, apart: int) -> list[str]:
    """Lines that make ``%<name>``, f32: all elements of ``%made``, so many vector<16xf32>."""
    found = ["%made"] if apart == 1 else [f"%made#{i}" for i in range(apart)]
    lines = []
    for i, other in enumerate(found[1:]):
        lines.append(f"%more{i} = arith.addf {found[0] if i == 0 else f'%more{i - 1}'}, {other} : vector<16xf32>")
    last = found[0] if apart == 1 else f"%more{apart - 2}"
    return [*lines, f"%{name} = vector.reduction <add>, {last} : vector<16xf32> into f32"]


def rounded(name: str, op: str, kind: str) -> list[str]:
    """Lines that make ``%<name>``, vector<16xf32>: what an op gives, as a kind of fewer bits has it.

    bf16 is widened by a shift, for the compiler drops a conversion and its return.
    """
    if kind == "f32":
        return [f"%{name} = {op} : vector<16xf32>"]
    lines = [
        f"%{name}_wide = {op} : vector<16xf32>",
        f"%{name}_narrow = arith.truncf %{name}_wide : vector<16xf32> to vector<16x{kind}>",
    ]
    if kind != "bf16":
        return [*lines, f"%{name} = arith.extf %{name}_narrow : vector<16x{kind}> to vector<16xf32>"]
    return [
        *lines,
        f"%{name}_bits = arith.bitcast %{name}_narrow : vector<16xbf16> to vector<16xi16>",
        f"%{name}_low = arith.extui %{name}_bits : vector<16xi16> to vector<16xi32>",
        f"%{name}_by = arith.constant dense<16> : vector<16xi32>",
        f"%{name}_high = arith.shli %{name}_low, %{name}_by : vector<16xi32>",
        f"%{name} = arith.bitcast %{name}_high : vector<16xi32> to vector<16xf32>",
    ]


def loaded(name: str, place: str, buffer: Buffer) -> list[str]:
    """Lines that make ``%name`` vector<16xf32> of sixteen elements of a buffer, whatever its dtype."""
    if buffer.kind == "f32":
        return [f"%{name} = vector.load %{buffer.name}[{place}] : {buffer.memref}, vector<16xf32>"]
    return [
        f"%{name}_given = vector.load %{buffer.name}[{place}] : {buffer.memref}, vector<16x{buffer.kind}>",
        f"%{name} = arith.extf %{name}_given : vector<16x{buffer.kind}> to vector<16xf32>",
    ]


def scratch(name: str, kind: str) -> str:
    """A line that makes ``%<name>``, a memref on the stack; registers of it lie on a line of the cache each."""
    properties = "alignment = 64 : i64, operandSegmentSizes = array<i32: 0, 0>"
    return f'%{name} = "memref.alloca"() <{{{properties}}}> : () -> {kind}'


def own_rows(each: int, total: int) -> str:
    """``%first`` and ``%end``: those of a workgroup that has ``each`` of ``total``."""
    return f"""\
%first = arith.muli %workgroup, %c{each} : index
%after = arith.addi %first, %c{each} : index
%end = arith.minui %after, %c{total} : index"""
