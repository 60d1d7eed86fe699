"""Limits of time and size within which a template is rendered, whatever is in it."""

import contextlib
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final

from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

_MOST_BITS: Final = 1 << 16


class LimitError(Exception):
    """A rendering takes too long, or makes too much."""


@dataclass(frozen=True, kw_only=True)
class RenderLimits:
    """Limits of one rendering.

    Attributes:
        seconds: longest time.
        characters: largest text, of the whole and of every value on the way, and largest list.
        used: part of the time that earlier renderings of the same request took.
    """

    seconds: float = 5.0
    characters: int = 4 << 20
    used: float = 0.0


DEFAULT_LIMITS: Final = RenderLimits()


class _Meter:
    """Time and size of one rendering."""

    def __init__(self, limits: RenderLimits) -> None:
        self._limits: Final = limits
        self._end: Final = perf_counter() + limits.seconds - limits.used
        self._written = 0

    def tick(self) -> None:
        """Checks the time."""
        if perf_counter() > self._end:
            raise LimitError(f"the chat template takes longer than {self._limits.seconds:g} s: send less, or mend it")

    def check_size(self, size: int) -> None:
        """Checks the size of a text or list."""
        if size > self._limits.characters:
            raise LimitError(
                f"the chat template makes more than {self._limits.characters} characters: send less, or mend it"
            )

    def write(self, piece: str) -> str:
        """Returns a piece of the whole text."""
        self.tick()
        self._written += len(piece)
        self.check_size(self._written)
        return piece


_METER: Final = ContextVar[_Meter]("_METER")


@contextlib.contextmanager
def limited(limits: RenderLimits) -> Iterator[_Meter]:
    """Limits the rendering in the block, and yields the counter of its text."""
    token = _METER.set(_Meter(limits))
    try:
        yield _METER.get()
    finally:
        _METER.reset(token)


class MeteredEnvironment(ImmutableSandboxedEnvironment):
    """Sandbox that looks at the time with every turn of a loop and every call, and at the size of growing values."""

    intercepted_binops: Final = frozenset({"+", "*", "**"})  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.filters.update(_metered=_metered, _sized=_sized)

    def call(self, context: Any, function: Any, /, *arguments: Any, **options: Any) -> Any:
        """Calls a function of the template's, a macro or a method."""
        _METER.get().tick()
        return _sized(super().call(context, function, *arguments, **options))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Computes operators that make large values of small ones."""
        _METER.get().check_size(_size(operator, left, right))
        return super().call_binop(context, operator, left, right)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Parses a template, and puts the checks around its loops and joined texts."""
        return _Checks().visit(super()._parse(source, name, filename))


class _Checks(NodeTransformer):
    """Puts filters around iterables of loops, and around values that may be a large text."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - the library's name
        self.generic_visit(node)
        node.iter = _filtered(node.iter, "_metered")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(node, "_sized")

    def visit_Filter(self, node: nodes.Filter) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(node, "_sized") if node.node is not None else node


def _filtered(node: Any, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _metered(values: Iterable[Any]) -> Iterator[Any]:
    meter = _METER.get()
    for value in values:
        meter.tick()
        yield value


def _sized(value: Any) -> Any:
    if isinstance(value, str | list | tuple):
        _METER.get().check_size(len(value))
    return value


def _size(operator: str, left: Any, right: Any) -> int:
    """Returns the size of what an operator would make; 0 unless it is a text, a list or a large number."""
    if operator == "**":
        large = isinstance(left, int) and isinstance(right, int) and left.bit_length() * right > _MOST_BITS
        return 1 << 62 if large else 0
    sizes = [len(one) if isinstance(one, str | list | tuple) else 0 for one in (left, right)]
    if operator == "+":
        return sum(sizes)
    count = right if sizes[0] else left
    return max(sizes) * count if isinstance(count, int) else 0
