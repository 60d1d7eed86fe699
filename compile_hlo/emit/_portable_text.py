"""Portable text: a module's text with its parameters as arguments, pure StableHLO for any consumer.

It is made from the text that was written, line by line, and equals what ``ArgumentParameters`` would have written: the
model is not recorded again for it.
"""

import bisect
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from compile_hlo.emit._types import symbol, tensor_type
from lang_core import TensorSpec

_HEAD: Final = "  func.func public "
_END: Final = "  }\n"
_GLOBAL: Final = '  "util.global"() '
_LOAD: Final = re.compile(r'^ *%(\d+) = "util\.global\.load"\(\) \{global = (@.*)\} : \(\) -> ')
_SCALAR: Final = re.compile(r'^    %(\d+) = "tensor\.from_elements"\((%[\w.]+)\) : ')
_PRIVATE: Final = "  func.func private "
_ATTRIBUTES: Final = " attributes {"
_NUMBER: Final = re.compile(r'"(?:[^"\\]|\\.)*"|%(\d+)\b')  # strings are left as they are


@dataclass(slots=True)
class _Function:
    """Values of a public function that the portable text does not define.

    Attributes:
        names: their replacements, by their numbers.
        scalars: arguments that are numbers.
    """

    names: dict[int, str] = field(default_factory=dict)
    scalars: list[str] = field(default_factory=list)

    def renamed(self, line: str) -> str:
        """Returns a line with the numbers that remain closed up."""
        gone = sorted(self.names)

        def name(match: re.Match[str]) -> str:
            if match[1] is None:
                return match[0]
            number = int(match[1])
            return self.names.get(number) or f"%{number - bisect.bisect_left(gone, number)}"

        return _NUMBER.sub(name, line)


def portable_text(
    module: Path, parameters: Mapping[str, TensorSpec], functions: Mapping[str, Iterable[str]]
) -> Iterator[str]:
    """Rewrites a module with external parameters such that they are arguments after each function's own.

    Args:
        module: text with ``ExternalParameters``.
        parameters: specs of all, by path; arguments are in this order.
        functions: paths of the parameters that each public function reads, by its name.

    Returns:
        The lines of the text.
    """
    heads: dict[str, list[str]] = {}
    symbols: dict[str, dict[str, str]] = {}
    for name, paths in functions.items():
        read = set(paths)
        used = [path for path in parameters if path in read]
        heads[symbol(name)] = [f"%parameter.{i}: {tensor_type(parameters[path])}" for i, path in enumerate(used)]
        symbols[symbol(name)] = {symbol(path): f"%parameter.{i}" for i, path in enumerate(used)}
    with module.open() as text:
        outlines = list(_outlines(text, symbols))
    with module.open() as text:
        yield from _rewritten(text, iter(outlines), heads)


def _name(head: str) -> str:
    """Returns the symbol in the head of a public function."""
    match = re.match(r'@(?:"(?:[^"\\]|\\.)*"|[\w.$-]+)', head[len(_HEAD) :])
    assert match is not None
    return match[0]


def _outlines(text: Iterable[str], symbols: Mapping[str, Mapping[str, str]]) -> Iterator[_Function]:
    """Finds the removed lines in each public function, in order."""
    function: _Function | None = None
    known: Mapping[str, str] = {}
    for line in text:
        if line.startswith(_HEAD):
            function, known = _Function(), symbols[_name(line)]
        elif function is not None and line == _END:
            yield function
            function = None
        elif function is not None and (load := _LOAD.match(line)):
            function.names[int(load[1])] = known[load[2]]
        elif function is not None and (scalar := _SCALAR.match(line)):
            function.names[int(scalar[1])] = scalar[2]
            function.scalars.append(scalar[2])


def _rewritten(text: Iterable[str], functions: Iterator[_Function], heads: Mapping[str, list[str]]) -> Iterator[str]:
    function: _Function | None = None
    for line in text:
        if line.startswith(_HEAD):
            function = next(functions)
            yield _head(line, function, heads[_name(line)])
        elif function is None:
            if not line.startswith(_GLOBAL):
                yield _private_head(line) if line.startswith(_PRIVATE) else line
        elif not _LOAD.match(line) and not _SCALAR.match(line):
            yield function.renamed(line)
        if line == _END:
            function = None


def _head(line: str, function: _Function, parameters: list[str]) -> str:
    """Returns a head with scalars as tensors, parameters as arguments, and without attributes of IREE."""
    arguments, results = line[: line.index(_ATTRIBUTES)].split(") -> (", 1)
    for name in function.scalars:
        arguments = re.sub(rf"{re.escape(name)}: (\w+)(?=,|$)", rf"{name}: tensor<\1>", arguments)
    separator = "" if arguments.endswith("(") or not parameters else ", "
    return f"{arguments}{separator}{', '.join(parameters)}) -> ({results} {{\n"


def _private_head(line: str) -> str:
    """Returns the head of a private function without attributes."""
    head, attributes, _ = line.partition(_ATTRIBUTES)
    return f"{head} {{\n" if attributes else line
