"""Reads the outline of a module from its text, in one pass."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from compile_hlo.emit import is_helper
from lang_core import InputError
from tapeline.outline._bound import bounded
from tapeline.outline._fold import Folder
from tapeline.outline._lines import Head, Line, head, line, lines, symbol, types
from tapeline.outline._outline import Box, Edge, FunctionOutline, Outline, Port, boxes_of, without_numbers

# Names of an entry point's arguments and of its results, which the text does not keep all.
Names = Mapping[str, tuple[Sequence[str], Sequence[str]]]

_PARAMETER: Final = "%parameter"
_BODY: Final = "    "
_COMMENT: Final = "    // "
_ROOT: Final = "the root"


def read_outline(path: Path, names: Names) -> Outline:
    """Reads ``module.mlir``.

    Comments say which module an op belongs to; private functions are blocks. Time is linear in the text. Memory is some
    bytes per value of one function; the outline itself is bounded.

    Args:
        path: of the text.
        names: of the arguments and results of entry points; others are numbered.

    Raises:
        InputError: there is no such file, or it has no function.
    """
    reader = _Reader(names)
    try:
        for text in lines(path):
            reader.line(text)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}): export the bundle again") from None
    outline = reader.outline()
    if not outline.functions:
        raise InputError(f"{path}: no function is in it: the file is damaged: export the bundle again")
    return outline


def _kind(name: str, public: bool) -> str:
    if public:
        return "entry_point"
    return "helper" if is_helper(name) else "kernel"


class _Known(NamedTuple):
    """A value: who has it (None for parameters), its type, and the name of an argument or a parameter."""

    owner: int | None
    type: str
    path: str = ""


class _Reader:
    def __init__(self, names: Names) -> None:
        self._names = names
        self._functions: list[FunctionOutline] = []
        self._given: dict[str, list[str]] = {}  # to a kernel in its first call: names of arguments, paths of parameters
        self._calls: dict[str, int] = {}
        self._body: _Body | None = None

    def line(self, text: str) -> None:
        """The next line."""
        result = head(text) if text.startswith("  func.func ") else None
        if result is not None:
            self._body = _Body(result, self._names.get(result.name), self._given, self._calls)
        elif self._body is not None and text.startswith("  }"):
            self._functions.append(self._body.end())
            self._body = None
        elif self._body is not None:
            self._body.line(text)

    def outline(self) -> Outline:
        """Everything, not more than a person can look at."""
        for function in self._functions:
            function.call_sites = self._calls.get(function.name, 0)
        return bounded(Outline(sorted(self._functions, key=lambda item: item.kind)))


class _Body:
    """Reads the body of one function."""

    def __init__(
        self,
        found: Head,
        names: tuple[Sequence[str], Sequence[str]] | None,
        given: dict[str, list[str]],
        calls: dict[str, int],
    ) -> None:
        self._function = FunctionOutline(found.name, _kind(found.name, found.public))
        self._values: dict[str, _Known] = {}
        self._folder = Folder()
        self._given, self._calls = given, calls
        self._box: Box | None = None
        self._uses: dict[tuple[int, str], None] = {}
        self._path = ""
        self._open: list[Line] = []
        self._count = 0
        own, made = names or ((), ())
        self._arguments(found, own)
        self._results = self._ports(self._function.results, found.results, made, "result")

    def _arguments(self, found: Head, names: Sequence[str]) -> None:
        weights = self._given.get(found.name, [])
        own = [pair for pair in found.arguments if not pair[0].startswith(_PARAMETER)]
        names = names or [name or "value" for name in weights[: len(own)]]
        ids = self._ports(self._function.arguments, [kind for _, kind in own], names, "argument")
        ports = {port.id: port.name for port in self._function.arguments}
        self._values = {name: _Known(id, kind, ports[id]) for (name, kind), id in zip(own, ids, strict=True)}
        for at, (name, kind) in enumerate(found.arguments):
            if name.startswith(_PARAMETER):
                path = weights[at] if at < len(weights) and weights[at] else name.lstrip("%")
                self._values[name] = _Known(None, kind, path)

    def _ports(self, ports: list[Port], kinds: Sequence[str], names: Sequence[str], word: str) -> list[int]:
        """Makes ports, alike ones the same; the port of each."""
        names = names if len(names) == len(kinds) else [word] * len(kinds)
        known: dict[tuple[str, str], Port] = {}
        result = []
        for name, kind in zip(names, kinds, strict=True):
            plain = without_numbers(name)
            port = known.get((plain, kind))
            if port is None:
                port = known[plain, kind] = Port(self._fresh(), name, kind, 0)
                ports.append(port)
            else:
                port.name = plain
            port.count += 1
            result.append(port.id)
        return result

    def _fresh(self) -> int:
        self._count += 1
        return self._count - 1

    def line(self, text: str) -> None:
        """A line of the body."""
        if text.startswith(_COMMENT):
            path = text[len(_COMMENT) : -1]
            if path != self._path:
                self._close()
                self._path = path
            return
        if text.lstrip().startswith("})"):
            self._end_regions(text)
            return
        result = line(text)
        if result is None or result.op in ("cond", "bb0"):
            return
        outside = text.startswith(_BODY) and text[len(_BODY)] != " "
        if result.op == "return" and outside:
            self._return(result)
        elif result.op != "return":
            self._operation(text, result)

    def _return(self, found: Line) -> None:
        self._close()
        for name, port in zip(found.operands, self._results, strict=False):
            known = self._values.get(name)
            if known is not None and known.owner is not None:
                self._function.edges.append(Edge(known.owner, port, known.type))

    def _operation(self, text: str, result: Line) -> None:
        if result.op == "constant":
            return
        if result.op == "util.global.load":
            self._values[result.names[0]] = _Known(None, result.types[0], symbol(text))
            return
        called = symbol(text) if result.op == "call" else None
        if called is not None:
            self._close()
            self._called(called, result)
        box = self._box
        if box is None:
            box = self._box = Box(self._fresh(), _path(called.removeprefix("block.") if called else self._path), called)
        box.operations[result.op] = box.operations.get(result.op, 0) + 1
        self._function.operations += 1
        for name in result.operands:
            self._use(box, name)
        self._define(result, result.types)
        if result.opens:
            self._open.append(result)
        if called is not None:
            self._close()

    def _called(self, name: str, found: Line) -> None:
        self._calls[name] = self._calls.get(name, 0) + 1
        if name not in self._given:
            known = [self._values.get(operand) for operand in found.operands]
            self._given[name] = [without_numbers(value.path) if value else "" for value in known]

    def _use(self, box: Box, name: str) -> None:
        known = self._values.get(name)
        if known is None:
            return
        if known.owner is None:
            box.parameters[known.path] = known.type
        elif known.owner != box.id:
            self._uses[known.owner, known.type] = None

    def _define(self, found: Line, kinds: Sequence[str]) -> None:
        if self._box is not None:
            for name, kind in zip(found.names, kinds, strict=False):
                self._values[name] = _Known(self._box.id, kind)

    def _end_regions(self, text: str) -> None:
        if self._open:
            opened = self._open.pop()
            self._define(opened, types(text.rpartition(" -> ")[2])[-len(opened.names) :])

    def _close(self) -> None:
        if self._box is not None:
            self._folder.append(self._box, self._uses)
            self._box, self._uses = None, {}

    def end(self) -> FunctionOutline:
        """The whole function."""
        self._close()
        function, folder = self._function, self._folder
        function.items = folder.items
        edges = dict.fromkeys(Edge(folder.id(e.source), e.target, e.type) for e in function.edges)
        inner = {
            Edge(source, box.id, kind, carried=source >= box.id)
            for box in boxes_of(function.items)
            for source, kind in folder.uses(box)
        }
        function.edges = [*sorted(inner, key=lambda e: (e.target, e.source, e.type)), *edges]
        return function


def _path(path: str) -> str:
    return "" if path == _ROOT else path
