"""Scatters in block functions that stay functions: each becomes a function that such a block calls.

IREE 3.13 converts scatters in ``func.func`` alone, and callees of a ``util.func`` are inlined after that.
"""

import re
from collections.abc import Iterator
from typing import Final

_BEGIN: Final = re.compile(r'    (%\w+) = "stablehlo\.scatter"\((.*?)\) <\{')
_END: Final = re.compile(r"    \}\) : \((.*)\) -> (.*?)\n?$")
_TENSOR: Final = re.compile(r"tensor<[^>]*>")


class ScatterFunctions:
    """Lines of a block with calls in place of its scatters.

    Args:
        block: name of the block.
    """

    def __init__(self, block: str) -> None:
        self._block = block
        self._begun: list[str] = []
        self._functions: list[str] = []

    def lines(self, line: str) -> Iterator[str]:
        """Yields a line, or once a scatter has ended the call of its function."""
        if not self._begun and not _BEGIN.match(line):
            yield line
            return
        self._begun.append(line)
        if ended := _END.match(line):
            yield self._call(_TENSOR.findall(ended[1]), ended[2])
            self._begun = []

    def functions(self) -> Iterator[str]:
        """Yields the lines of the functions, which stand behind the block."""
        yield from self._functions

    def _call(self, kinds: list[str], wanted: str) -> str:
        begun = _BEGIN.match(self._begun[0])
        assert begun is not None
        result, operands = begun[1], begun[2].split(", ")
        name = f"{self._block}.scatter{result[1:]}"
        given = ", ".join(f"{operand}: {kind}" for operand, kind in zip(operands, kinds, strict=True))
        self._functions += [
            f"  func.func private @{name}({given}) -> {wanted} attributes {{no_inline}} {{\n",
            *self._begun,
            f"    return {result} : {wanted}\n",
            "  }\n",
        ]
        return f"    {result} = func.call @{name}({', '.join(operands)}) : ({', '.join(kinds)}) -> {wanted}\n"
