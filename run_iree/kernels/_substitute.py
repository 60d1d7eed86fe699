"""Puts kernels in the place of helper functions, in a module's text."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from run_iree.kernels._catalogue import CpuKernels
from run_iree.kernels._text import Arrangement, CpuKernel, entry_name

_HEAD: Final = re.compile(r"  func\.func private @(?P<name>[\w.]+)\((?P<arguments>.*)\) -> \((?P<results>.*)\) \{\n")
_DTYPE: Final = re.compile(r"(?:bf|f|i)\d+>$")
_END: Final = "  }\n"


@dataclass(slots=True)
class Substitution:
    """A module's text with kernels in it.

    Attributes:
        kernels: kernels of the target.
        used: name of the kernel by function, of those that were put in so far.
    """

    kernels: CpuKernels
    used: dict[str, str] = field(default_factory=dict)
    _arrangements: set[str] = field(default_factory=set)

    def lines(self, source: Iterable[str]) -> Iterator[str]:
        """Yields the lines of a module, with kernels in the place of the helper functions that have one."""
        lines = iter(source)
        for line in lines:
            head = _HEAD.fullmatch(line)
            kernel = None if head is None else self.kernels.kernel(head["name"])
            if head is None or kernel is None:
                yield line
                continue
            for inner in lines:
                if inner == _END:
                    break
            self.used[head["name"]] = kernel.name
            yield _call(head["name"], head["arguments"], head["results"], kernel)
            yield kernel.executable(head["name"])
            yield from self._arrangement(kernel.arrangement)

    def _arrangement(self, arrangement: Arrangement | None) -> Iterator[str]:
        """Yields the executable of an arrangement, once per module."""
        if arrangement is not None and arrangement.function not in self._arrangements:
            self._arrangements.add(arrangement.function)
            yield arrangement.kernel.executable(arrangement.function)


def _call(name: str, arguments: str, results: str, kernel: CpuKernel) -> str:
    """Returns the helper function with a dispatch of the kernel as its body; results are converted to their dtypes."""
    names, kinds = zip(*(argument.split(": ", 1) for argument in arguments.split(", %")), strict=True)
    operands = [f"%{operand.removeprefix('%')}" for operand in names]
    lines = []
    if kernel.arrangement is not None:
        lines, operands, kinds = _arranged(kernel.arrangement, operands, kinds)
    wanted = results.split(", ")
    made = [
        _DTYPE.sub(buffer.kind + ">", kind) for kind, buffer in zip(wanted, kernel.buffers[len(kinds) :], strict=True)
    ]
    count = f":{len(made)}" if len(made) > 1 else ""
    values = [f"%r#{i}" for i in range(len(made))] if count else ["%r"]
    lines.append(f"%r{count} = {_dispatch(name, operands, kinds, made)}")
    for i, (kind, other) in enumerate(zip(made, wanted, strict=True)):
        if kind != other:
            lines.append(f"%wanted{i} = stablehlo.convert {values[i]} : ({kind}) -> {other}")
            values[i] = f"%wanted{i}"
    lines.append(f"return {', '.join(values)} : {results}")
    body = "".join(f"    {line}\n" for line in lines)
    return f"  func.func private @{name}({arguments}) -> ({results}) {{\n{body}  }}\n"


def _arranged(
    arrangement: Arrangement, operands: Sequence[str], kinds: Sequence[str]
) -> tuple[list[str], list[str], tuple[str, ...]]:
    """Returns the line of a dispatch of all operands but the last, and the operands of the kernel with their types."""
    made = arrangement.kernel.buffers[-1]
    kind = f"tensor<{made.elements}x{made.kind}>"
    line = f"%arranged = {_dispatch(arrangement.function, operands[:-1], kinds[:-1], [kind])}"
    return [line], ["%arranged", operands[-1]], (kind, kinds[-1])


def _dispatch(function: str, operands: Sequence[str], kinds: Sequence[str], made: Sequence[str]) -> str:
    given = f"({', '.join(made)})" if len(made) > 1 else made[0]
    target = f"@kernel.{function}::@{entry_name(function)}"
    return f"flow.dispatch {target}({', '.join(operands)}) : ({', '.join(kinds)}) -> {given}"
