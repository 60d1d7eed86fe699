"""Puts kernels in the place of helper functions, in a module's text."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from compile_hlo.directions import KernelSignature
from compile_hlo.emit import helper_head, read_helper, tensor_type
from run_iree.kernels._catalogue import CpuKernels
from run_iree.kernels._text import Arrangement, CpuKernel, entry_name

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
            function = read_helper(line)
            kernel = None if function is None else self.kernels.kernel(function)
            if function is None or kernel is None:
                yield line
                continue
            for inner in lines:
                if inner == _END:
                    break
            self.used[function.name] = kernel.name
            yield _call(function, kernel)
            yield kernel.executable(function.name)
            yield from self._arrangement(kernel.arrangement)

    def _arrangement(self, arrangement: Arrangement | None) -> Iterator[str]:
        """Yields the executable of an arrangement, once per module."""
        if arrangement is not None and arrangement.function not in self._arrangements:
            self._arrangements.add(arrangement.function)
            yield arrangement.kernel.executable(arrangement.function)


def _call(function: KernelSignature, kernel: CpuKernel) -> str:
    """Returns the helper function with a dispatch of the kernel as its body; results are converted to their dtypes."""
    name = function.name
    kinds = [tensor_type(argument.spec) for argument in function.arguments]
    operands, lines = [f"%a{i}" for i in range(len(kinds))], []
    if kernel.arrangement is not None:
        lines, operands, kinds = _arranged(kernel.arrangement, operands, kinds)
    wanted = [tensor_type(result.spec) for result in function.results]
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
    lines.append(f"return {', '.join(values)} : {', '.join(wanted)}")
    body = "".join(f"    {line}\n" for line in lines)
    return f"{helper_head(function, described=False)}{body}  }}\n"


def _arranged(
    arrangement: Arrangement, operands: Sequence[str], kinds: Sequence[str]
) -> tuple[list[str], list[str], list[str]]:
    """Returns the line of a dispatch of the first operands, and the operands of the kernel with their types."""
    *taken, made = arrangement.kernel.buffers
    count, kind = len(taken), f"tensor<{made.elements}x{made.kind}>"
    line = f"%arranged = {_dispatch(arrangement.function, operands[:count], kinds[:count], [kind])}"
    return [line], ["%arranged", *operands[count:]], [kind, *kinds[count:]]


def _dispatch(function: str, operands: Sequence[str], kinds: Sequence[str], made: Sequence[str]) -> str:
    given = f"({', '.join(made)})" if len(made) > 1 else made[0]
    target = f"@kernel.{function}::@{entry_name(function)}"
    return f"flow.dispatch {target}({', '.join(operands)}) : ({', '.join(kinds)}) -> {given}"
