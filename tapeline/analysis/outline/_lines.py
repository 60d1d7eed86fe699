"""Parser of the lines of a module's text, in the form that emission writes."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

_LINE: Final = re.compile(r'\s*(?:(?P<name>%[\w.]+)(?::(?P<count>\d+))? = )?"?(?P<op>[A-Za-z_][\w.$]*)"?')
_VALUE: Final = re.compile(r"%[\w.]+(?:#\d+)?")
_TYPE: Final = re.compile(r"tensor<((?:\d+x)*)(\w+)>")
_SYMBOL: Final = re.compile(r'@(?:"((?:[^"\\]|\\.)*)"|([\w.$]+))')
_ESCAPE: Final = re.compile(rb"\\([0-9A-F]{2})")
_ARGUMENT: Final = re.compile(r"(%[\w.]+): (tensor<[^>]*>|\w+)")
_HEAD: Final = re.compile(r"  func\.func (public|private) ")
# Longest part of a constant that is read: weights may be in the text.
_PIECE: Final = 1 << 16
_CONSTANT: Final = ' = stablehlo.constant dense<"0x'


class Head(NamedTuple):
    """Head of a function: arguments as (name, type), and the types of the results."""

    name: str
    public: bool
    arguments: list[tuple[str, str]]
    results: list[str]


class Line(NamedTuple):
    """Line with an op.

    Attributes:
        names: names of the results.
        op: name of the op, without its dialect.
        operands: names of values in the line.
        types: types of the results; empty if a later line has them.
        opens: whether regions of the op follow.
    """

    names: list[str]
    op: str
    operands: list[str]
    types: list[str]
    opens: bool


def lines(path: Path) -> Iterator[str]:
    """Yields the lines of a file; of a long constant only the beginning."""
    with path.open(errors="replace") as file:
        while piece := file.readline(_PIECE):
            if not piece.endswith("\n"):
                if _CONSTANT in piece[:256]:
                    while (rest := file.readline(_PIECE)) and not rest.endswith("\n"):
                        pass
                else:
                    piece += file.readline()
            yield piece


def head(text: str) -> Head | None:
    """Returns the head of a function, or None if the line is none."""
    match = _HEAD.match(text)
    if match is None:
        return None
    arguments, _, results = text.partition(") -> (")
    pairs = [(name, type_of(kind)) for name, kind in _ARGUMENT.findall(arguments)]
    return Head(symbol(text), match[1] == "public", pairs, types(results))


def line(text: str) -> Line | None:
    """Returns the op of a line, or None if it has none."""
    match = _LINE.match(text)
    if match is None:
        return None
    count = int(match["count"] or 1)
    names = [] if match["name"] is None else [match["name"]]
    if count > 1:
        names = [f"{names[0]}#{i}" for i in range(count)]
    values = _VALUE.findall(text, match.end())
    opens = text.endswith("({\n")
    kinds = [] if opens or not names else types(text.rpartition(" -> ")[2] if " -> " in text else text)[-count:]
    return Line(names, match["op"].removeprefix("stablehlo."), values, kinds, opens)


def symbol(text: str) -> str:
    """Returns the first symbol of a line."""
    match = _SYMBOL.search(text)
    if match is None:
        return ""
    if match[2] is not None:
        return match[2]
    return _ESCAPE.sub(lambda escape: bytes.fromhex(escape[1].decode()), match[1].encode()).decode(errors="replace")


def types(text: str) -> list[str]:
    """Returns the types of tensors in a text, in order."""
    return [_written(*parts) for parts in _TYPE.findall(text)]


def type_of(text: str) -> str:
    """Returns a type in the notation of specs.

    >>> type_of("tensor<2x3xbf16>"), type_of("tensor<i1>"), type_of("i32")
    ('bf16[2,3]', 'bool[]', 'i32')
    """
    tensors = types(text)
    return tensors[0] if tensors else text


def _written(shape: str, element: str) -> str:
    return f"{ {'i1': 'bool', 'ui8': 'u8'}.get(element, element) }[{shape[:-1].replace('x', ',')}]"
