"""The reader of outlines: one pass over a module's text."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from compile_hlo.emit import is_helper
from lang_core import InputError
from tapeline.analysis.outline._bound import bounded
from tapeline.analysis.outline._fold import Folder
from tapeline.analysis.outline._functions import called_function
from tapeline.analysis.outline._lines import Head, Line, head, line, lines, symbol, types
from tapeline.analysis.outline._outline import Box, Edge, FunctionOutline, Outline, Port, boxes_of, without_numbers

# Names of arguments and results by entry point; the text does not have all of them.
Names = Mapping[str, tuple[Sequence[str], Sequence[str]]]

_PARAMETER: Final = "%parameter"
_BODY: Final = "    "
_COMMENT: Final = "    // "
_ROOT: Final = "the root"


def read_outline(path: Path, names: Names) -> Outline:
    """Reads the outline of ``module.mlir``.

    Comments name the module of an op; private functions are blocks. Time is linear in the text. Memory is some bytes
    per value of one function; the outline itself is bounded.

    Args:
        path: path of the text.
        names: names of the arguments and results of entry points; those of other functions are numbered.

    Raises:
        InputError: the file cannot be read, or lacks functions.
    """
    reader = _Reader(names)
    try:
        for text in lines(path):
            reader.line(text)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}): export the bundle again") from None
    outline = reader.outline()
    if not outline.functions:
        raise InputError(f"{path}: contains no function: the file is damaged: export the bundle again")
    return outline


def _kind(name: str, public: bool) -> str:
    if public:
        return "entry_point"
    return "helper" if is_helper(name) else "kernel"


class _Known(NamedTuple):
    """Value: id of the box that has it (None for parameters), type, and path of an argument or a parameter."""

    owner: int | None
    type: str
    path: str = ""


class _Reader:
    def __init__(self, names: Names) -> None:
        self._names = names
        self._functions: list[FunctionOutline] = []
        self._given: dict[str, list[str]] = {}  # names of a kernel's arguments in its first call
        self._calls: dict[str, int] = {}
        self._body: _Body | None = None

    def line(self, text: str) -> None:
        """Reads the next line."""
        function = head(text) if text.startswith("  func.func ") else None
        if function is not None:
            self._body = _Body(function, self._names.get(function.name), self._given, self._calls)
        elif self._body is not None and text.startswith("  }"):
            self._functions.append(self._body.end())
            self._body = None
        elif self._body is not None:
            self._body.line(text)

    def outline(self) -> Outline:
        """Returns the outline, limited in size."""
        for function in self._functions:
            function.call_sites = self._calls.get(function.name, 0)
        return bounded(Outline(sorted(self._functions, key=lambda function: function.kind)))


class _Body:
    """Reader of the body of one function."""

    def __init__(
        self,
        function: Head,
        names: tuple[Sequence[str], Sequence[str]] | None,
        given: dict[str, list[str]],
        calls: dict[str, int],
    ) -> None:
        self._function = FunctionOutline(function.name, _kind(function.name, function.public))
        self._values: dict[str, _Known] = {}
        self._folder = Folder()
        self._given, self._calls = given, calls
        self._box: Box | None = None
        self._uses: dict[tuple[int, str], None] = {}
        self._path = ""
        self._open: list[Line] = []
        self._count = 0
        own, made = names or ((), ())
        self._arguments(function, own)
        self._results = self._ports(self._function.results, function.results, made, "result")

    def _arguments(self, function: Head, names: Sequence[str]) -> None:
        weights = self._given.get(function.name, [])
        own = [pair for pair in function.arguments if not pair[0].startswith(_PARAMETER)]
        names = names or [name or "value" for name in weights[: len(own)]]
        ids = self._ports(self._function.arguments, [kind for _, kind in own], names, "argument")
        ports = {port.id: port.name for port in self._function.arguments}
        self._values = {name: _Known(id, kind, ports[id]) for (name, kind), id in zip(own, ids, strict=True)}
        for at, (name, kind) in enumerate(function.arguments):
            if name.startswith(_PARAMETER):
                path = weights[at] if at < len(weights) and weights[at] else name.lstrip("%")
                self._values[name] = _Known(None, kind, path)

    def _ports(self, ports: list[Port], kinds: Sequence[str], names: Sequence[str], word: str) -> list[int]:
        """Appends ports, one for names that differ in numbers only; returns the id of each name's port."""
        names = names if len(names) == len(kinds) else [word] * len(kinds)
        known: dict[tuple[str, str], Port] = {}
        ids = []
        for name, kind in zip(names, kinds, strict=True):
            plain = without_numbers(name)
            port = known.get((plain, kind))
            if port is None:
                port = known[plain, kind] = Port(self._fresh(), name, kind, 0)
                ports.append(port)
            else:
                port.name = plain
            port.count += 1
            ids.append(port.id)
        return ids

    def _fresh(self) -> int:
        self._count += 1
        return self._count - 1

    def line(self, text: str) -> None:
        """Reads a line of the body."""
        if text.startswith(_COMMENT):
            path = text[len(_COMMENT) : -1]
            if path != self._path:
                self._close()
                self._path = path
            return
        if text.lstrip().startswith("})"):
            self._end_regions(text)
            return
        operation = line(text)
        if operation is None or operation.op in ("cond", "bb0"):
            return
        outside = text.startswith(_BODY) and text[len(_BODY)] != " "
        if operation.op == "return" and outside:
            self._return(operation)
        elif operation.op != "return":
            self._operation(text, operation)

    def _return(self, operation: Line) -> None:
        self._close()
        for name, port in zip(operation.operands, self._results, strict=False):
            known = self._values.get(name)
            if known is not None and known.owner is not None:
                self._function.edges.append(Edge(known.owner, port, known.type))

    def _operation(self, text: str, operation: Line) -> None:
        if operation.op == "constant":
            return
        if operation.op == "util.global.load":
            self._values[operation.names[0]] = _Known(None, operation.types[0], symbol(text))
            return
        function = called_function(text)
        if function is not None:
            self._calls[function] = self._calls.get(function, 0) + 1
        called = function if operation.op == "call" else None  # calls of helpers stay ops of their module
        if called is not None:
            self._close()
            self._called(called, operation)
        box = self._box
        if box is None:
            box = self._box = Box(self._fresh(), _path(called.removeprefix("block.") if called else self._path), called)
        box.operations[operation.op] = box.operations.get(operation.op, 0) + 1
        self._function.operations += 1
        for name in operation.operands:
            self._use(box, name)
        self._define(operation, operation.types)
        if operation.opens:
            self._open.append(operation)
        if called is not None:
            self._close()

    def _called(self, name: str, operation: Line) -> None:
        if name not in self._given:
            known = [self._values.get(operand) for operand in operation.operands]
            self._given[name] = [without_numbers(value.path) if value else "" for value in known]

    def _use(self, box: Box, name: str) -> None:
        known = self._values.get(name)
        if known is None:
            return
        if known.owner is None:
            box.parameters[known.path] = known.type
        elif known.owner != box.id:
            self._uses[known.owner, known.type] = None

    def _define(self, operation: Line, kinds: Sequence[str]) -> None:
        if self._box is not None:
            for name, kind in zip(operation.names, kinds, strict=False):
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
        """Returns the outline of the function."""
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
