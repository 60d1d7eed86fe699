"""Text of kernels: functions over buffers in MLIR's vector dialect, which a module calls as dispatches."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from run_iree.kernels._lines import Buffer, check_names

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
{views}
{body}
        return
      }}
    }}
  }}
"""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Dispatch ahead of a kernel, of all the kernel's arguments but the last; its result takes their place.

    Attributes:
        function: name; products of the same x share it.
        kernel: kernel with one result.
    """

    function: str
    kernel: "CpuKernel"


@dataclass(frozen=True, slots=True)
class CpuKernel:
    """Generated function over buffers.

    Attributes:
        name: name in kernel_config.json.
        buffers: arguments, then results; with an arrangement its result is the first.
        workgroups: number of workgroups; each has its number in ``%workgroup``.
        body: operations on memrefs that are named as the buffers; ``%c0`` is defined.
        arrangement: dispatch that runs before, if any.
    """

    name: str
    buffers: tuple[Buffer, ...]
    workgroups: int
    body: str
    arrangement: Arrangement | None = None
    before: Sequence[str] = ("%workgroup = stream.dispatch.workgroup.id[0] : index",)
    offsets: Mapping[str, str] = field(default_factory=dict)

    def executable(self, function: str) -> str:
        """Returns the module-level text of the kernel for a function of this name.

        Raises:
            CompileError: the body uses a name that is not defined there, or defines one twice.
        """
        names = [f"%b_{buffer.name}" for buffer in self.buffers]
        bindings = ", ".join(f"{name}: !stream.binding" for name in names)
        whole = [_view(buffer, "%c0") for buffer in self.buffers if buffer.name not in self.offsets]
        parts = [_view(buffer, self.offsets[buffer.name]) for buffer in self.buffers if buffer.name in self.offsets]
        check_names("\n".join([*whole, *self.before, *parts, self.body]), ["%c0", *names])
        return _EXECUTABLE.format(
            symbol=f"kernel.{function}",
            entry=entry_name(function),
            workgroups=self.workgroups,
            bindings=bindings,
            views=indented([*whole, *self.before, *parts], 8),
            body=textwrap.indent(textwrap.dedent(self.body), "        "),
        )


def _view(buffer: Buffer, offset: str) -> str:
    """Makes the memref of a buffer from a byte of its binding on."""
    return f"%{buffer.name} = stream.binding.subspan %b_{buffer.name}[{offset}] : !stream.binding -> {buffer.memref}"


def entry_name(function: str) -> str:
    """Returns the name of a kernel's function in machine code; executables are linked into one library."""
    return function.replace(".", "_")


def constants(numbers: Sequence[int]) -> str:
    """Makes index constants ``%c<number>``, each once."""
    return "\n".join(f"%c{number} = arith.constant {number} : index" for number in sorted({*numbers} - {0}))


def listed(numbers: Sequence[float]) -> str:
    """Returns numbers as an attribute, such as the mask of a shuffle."""
    return f"[{', '.join(map(str, numbers))}]"


def turned(
    registers: Sequence[str], bits: Iterable[int], kind: str, prefix: str = "turn", lanes: int = 16
) -> tuple[list[str], list[str]]:
    """Transposes registers by exchanging lanes: a round for each bit of the numbers of lanes and registers.

    After the rounds of bits 1, 2, 4 and 8 lane c of register r has the former lane r of register c. With half as many
    registers as lanes, and without the last round, this holds within each half.

    Args:
        registers: names of the registers.
        bits: bit of each round.
        kind: type of an element.
        prefix: beginning of the new names.
        lanes: lanes of a register.

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


def prefetches(name: str, base: str, buffer: Buffer, ahead: Iterable[int], locality: int = 3) -> list[str]:
    """Prefetches the data so many elements after an index, with locality 2 into the second level of the cache only."""
    lines = []
    for number, place in enumerate(ahead):
        lines += [
            f"%{name}{number} = arith.addi {base}, %c{place} : index",
            f"memref.prefetch %{buffer.name}[%{name}{number}], read, locality<{locality}>, data : {buffer.memref}",
        ]
    return lines


def within(lines: Iterable[str], by: int = 2) -> list[str]:
    """Returns lines with more indentation."""
    return [" " * by + line for line in lines]


def indented(lines: Iterable[str], by: int) -> str:
    """Returns lines as one text with indentation."""
    return "\n".join(within(lines, by))


def largest_divisor(total: int, most: int) -> int:
    """Returns the largest divisor of ``total`` that is at most ``most``.

    >>> largest_divisor(24, 7)
    6
    """
    return next(size for size in range(min(most, total), 0, -1) if total % size == 0)


def wanted_workgroups(weight_bytes: int) -> int:
    """Returns a number of workgroups that lets threads of unequal speed end at about the same time."""
    return max(16, min(128, weight_bytes >> 16))


def share(total: int, unit: int, wanted: int) -> tuple[int, int]:
    """Divides ``total`` rows into workgroups: (rows of each, a multiple of ``unit``; number of workgroups).

    >>> share(5632, 4, 16), share(10, 4, 16)
    ((352, 16), (4, 3))
    """
    rows = -(-total // wanted)
    rows = -(-rows // unit) * unit
    return rows, -(-total // rows)


def stored(value: str, place: str, buffer: Buffer) -> list[str]:
    """Stores an f32, named without its ``%``, to a buffer, rounded if that has fewer bits."""
    if buffer.kind == "f32":
        return [f"memref.store %{value}, %{buffer.name}[{place}] : {buffer.memref}"]
    return [
        f"%{value}_rounded = arith.truncf %{value} : f32 to {buffer.kind}",
        f"memref.store %{value}_rounded, %{buffer.name}[{place}] : {buffer.memref}",
    ]


def results(name: str, count: int) -> list[str]:
    """Returns the names of an operation's results."""
    return [name] if count == 1 else [f"{name}#{i}" for i in range(count)]


def total(name: str, sums: Sequence[str]) -> list[str]:
    """Makes ``%<name>`` f32, the sum of all elements of vectors of sixteen f32."""
    apart, lines = len(sums), list[str]()
    for i, other in enumerate(sums[1:]):
        lines.append(f"%more{i} = arith.addf {sums[0] if i == 0 else f'%more{i - 1}'}, {other} : vector<16xf32>")
    last = sums[0] if apart == 1 else f"%more{apart - 2}"
    return [*lines, f"%{name} = vector.reduction <add>, {last} : vector<16xf32> into f32"]


def total_in_turn(name: str, sums: str, lanes: int) -> list[str]:
    """Makes ``%<name>`` f32, the sum of a vector's lanes, one after the other, from 0 on."""
    lines, so_far = [f"%{name}_0 = arith.constant 0.0 : f32"], f"%{name}_0"
    for lane in range(lanes):
        made = f"%{name}" if lane == lanes - 1 else f"%{name}_{lane + 1}"
        lines += [
            f"%{name}_of{lane} = vector.extract {sums}[{lane}] : f32 from vector<{lanes}xf32>",
            f"{made} = arith.addf {so_far}, %{name}_of{lane} : f32",
        ]
        so_far = made
    return lines


def rounded(name: str, op: str, kind: str) -> list[str]:
    """Makes ``%<name>`` vector<16xf32>: the result of an op, rounded to a type of fewer bits.

    bf16 is widened by a shift, because the compiler drops a conversion followed by its inverse.
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
    """Makes ``%name`` vector<16xf32> of sixteen elements of a buffer of any float type."""
    if buffer.kind == "f32":
        return [f"%{name} = vector.load %{buffer.name}[{place}] : {buffer.memref}, vector<16xf32>"]
    return [
        f"%{name}_given = vector.load %{buffer.name}[{place}] : {buffer.memref}, vector<16x{buffer.kind}>",
        f"%{name} = arith.extf %{name}_given : vector<16x{buffer.kind}> to vector<16xf32>",
    ]


def scratch(name: str, kind: str) -> str:
    """Makes ``%<name>``, a memref on the stack that begins at a cache line."""
    properties = "alignment = 64 : i64, operandSegmentSizes = array<i32: 0, 0>"
    return f'%{name} = "memref.alloca"() <{{{properties}}}> : () -> {kind}'


def own_rows(rows: int, total: int) -> str:
    """Makes ``%first`` and ``%end`` of a workgroup that has ``rows`` of ``total`` rows."""
    return f"""\
%first = arith.muli %workgroup, %c{rows} : index
%after = arith.addi %first, %c{rows} : index
%end = arith.minui %after, %c{total} : index"""
