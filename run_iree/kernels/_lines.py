"""Lines of kernels, built from operations that return typed values, and a check of names in a kernel's text.

``Lines`` writes MLIR's text line by line. An operation returns its value, which has a type, so a later operation
neither repeats the type nor spells a name, and operands of different types are refused. ``check_names`` checks a whole
text: every name is defined once, above its uses, in a region that is still open.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from lang_core import CompileError

LINE: Final = 64  # bytes of a cache line

_VECTOR: Final = re.compile(r"vector<(\d+)x(\w+)>")
_NAME: Final = re.compile(r"%\w+")
_DEFINED: Final = re.compile(r"(%\w+)(?::\d+)? = ")
_REGION: Final = re.compile(r"(%\w+) = (%\w+)")


@dataclass(frozen=True, slots=True)
class Buffer:
    """Argument or result of a kernel.

    Attributes:
        name: name of its memref in the kernel's text, without the ``%``.
        elements: number of elements.
        kind: type of an element.
    """

    name: str
    elements: int
    kind: str

    @property
    def memref(self) -> str:
        """Type of a flat view."""
        return f"memref<{self.elements}x{self.kind}>"

    @property
    def bytes(self) -> int:
        """Bytes that it takes, whole cache lines."""
        return -(-self.elements * element_bytes(self.kind) // LINE) * LINE


def element_bytes(kind: str) -> int:
    """Returns the bytes of an element of a type such as ``bf16`` or ``i8``."""
    return int(kind.lstrip("bfi")) // 8


class Operand(str):
    """Name of a value with its ``%``.

    Attributes:
        kind: type of the value.
    """

    kind: str
    __slots__ = ("kind",)

    def __new__(cls, name: str, kind: str) -> "Operand":
        """Makes the value of a name, with its ``%``, and a type."""
        value = super().__new__(cls, name)
        value.kind = kind
        return value


def vector(lanes: int, element: str) -> str:
    """Returns the type of a vector."""
    return f"vector<{lanes}x{element}>"


def element_of(kind: str) -> str:
    """Returns the type of a vector's elements, or the type itself if it is a scalar's.

    >>> element_of("vector<16xi8>"), element_of("f32")
    ('i8', 'f32')
    """
    match = _VECTOR.fullmatch(kind)
    return kind if match is None else match[2]


class Lines(list[str]):
    """Lines of a region, in order. Names of new values are given without their ``%``."""

    def make(self, name: str, operation: str, kind: str) -> Operand:
        """Adds an operation, written in full, with a result of this type."""
        self.append(f"%{name} = {operation}")
        return Operand(f"%{name}", kind)

    def given(self, lines: Iterable[str], name: str, kind: str) -> Operand:
        """Adds lines that make a value, and returns it."""
        self.extend(lines)
        return Operand(f"%{name}", kind)

    def same(self, name: str, operation: str, *operands: Operand) -> Operand:
        """Adds an operation with operands and a result of one type, such as ``arith.addi``.

        Raises:
            CompileError: the operands have different types.
        """
        kinds = {operand.kind for operand in operands}
        if len(kinds) != 1:
            described = ", ".join(f"{operand}: {operand.kind}" for operand in operands)
            raise CompileError(f"%{name} = {operation}: expected operands of one type; found {described}")
        (kind,) = kinds
        return self.make(name, f"{operation} {', '.join(operands)} : {kind}", kind)

    def cast(self, name: str, operation: str, operand: Operand, kind: str) -> Operand:
        """Adds a conversion, such as ``arith.extsi``."""
        return self.make(name, f"{operation} {operand} : {operand.kind} to {kind}", kind)

    def constant(self, name: str, number: object, kind: str) -> Operand:
        """Adds a constant; all lanes of a vector have the number."""
        text = f"dense<{number}>" if _VECTOR.fullmatch(kind) else f"{number}"
        return self.make(name, f"arith.constant {text} : {kind}", kind)

    def shuffle(self, name: str, low: Operand, high: Operand, lanes: Sequence[int]) -> Operand:
        """Adds a vector of chosen lanes; those of ``high`` are counted after those of ``low``."""
        listed = f"[{', '.join(map(str, lanes))}]"
        kind = vector(len(lanes), element_of(low.kind))
        return self.make(name, f"vector.shuffle {low}, {high} {listed} : {low.kind}, {high.kind}", kind)

    def load(self, name: str, buffer: Buffer, place: Operand, lanes: int | None = None) -> Operand:
        """Adds a load of one element, or of a vector."""
        if lanes is None:
            return self.make(name, f"memref.load %{buffer.name}[{place}] : {buffer.memref}", buffer.kind)
        kind = vector(lanes, buffer.kind)
        return self.make(name, f"vector.load %{buffer.name}[{place}] : {buffer.memref}, {kind}", kind)

    def store(self, value: Operand, buffer: Buffer, place: Operand) -> None:
        """Adds a store of an element, or of a vector.

        Raises:
            CompileError: the buffer has elements of another type.
        """
        if element_of(value.kind) != buffer.kind:
            raise CompileError(f"store to {buffer.name}: expected {buffer.kind}; found {value}: {value.kind}")
        operation, more = ("memref", "") if value.kind == buffer.kind else ("vector", f", {value.kind}")
        self.append(f"{operation}.store {value}, %{buffer.name}[{place}] : {buffer.memref}{more}")

    def broadcast(self, name: str, value: Operand, lanes: int) -> Operand:
        """Adds a vector with a value in all lanes."""
        kind = vector(lanes, value.kind)
        return self.make(name, f"vector.broadcast {value} : {value.kind} to {kind}", kind)

    def extract(self, name: str, value: Operand, lane: int) -> Operand:
        """Adds one lane of a vector."""
        kind = element_of(value.kind)
        return self.make(name, f"vector.extract {value}[{lane}] : {kind} from {value.kind}", kind)


def index(number: int) -> Operand:
    """Returns the index constant ``%c<number>``, which a kernel defines at its beginning."""
    return Operand(f"%c{number}", "index")


def check_names(text: str, known: Iterable[str]) -> None:
    """Checks that a kernel's text defines every name once, above its uses and in a region that encloses them.

    Kernels of this room have no regions but loops; a text with others is left to the compiler.

    Args:
        text: lines of a function's body.
        known: names that are defined above, with their ``%``.

    Raises:
        CompileError: a name is not defined where it is used, or is defined twice.
    """
    open_names = set(known)
    regions: list[list[str]] = [[]]
    head = ""
    for line in text.split("\n"):
        stripped = f"{head}{line.strip()}"
        if stripped.startswith(("scf.for", "%")) and "scf.for" in stripped and not stripped.endswith("{"):
            head = f"{stripped} "  # the head of a loop on several lines
            continue
        head = ""
        if stripped.startswith("^") or (stripped.endswith("{") and "scf.for" not in stripped):
            return
        if stripped.startswith("}"):
            open_names.difference_update(regions.pop())
            stripped = stripped[1:]
            if not stripped:
                continue
        defined = _DEFINED.match(stripped)
        rest = stripped if defined is None else stripped[defined.end() :]
        pairs = _REGION.findall(rest) if stripped.endswith("{") else []
        inner = [name for name, _ in pairs]
        for name in _NAME.findall(rest):
            if name not in open_names and name not in inner:
                raise CompileError(f"{name} is not defined above its use: {line.strip()}")
        if defined is not None:
            _define([defined[1]], open_names, regions[-1], line)
        if stripped.endswith("{"):
            regions.append([])
            _define(inner, open_names, regions[-1], line)


def _define(names: Sequence[str], open_names: set[str], region: list[str], line: str) -> None:
    for name in names:
        if name in open_names:
            raise CompileError(f"{name} is defined twice: {line.strip()}")
        open_names.add(name)
        region.append(name)
