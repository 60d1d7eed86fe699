"""The parts of an outline."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from lang_core import checked_choices

_NUMBER: Final = re.compile(r"(?<![^.])\d+(?![^.])")


def without_numbers(path: str) -> str:
    """Returns a module path with N for its numbers.

    >>> without_numbers("model.layers.3.norm1.weight")
    'model.layers.N.norm1.weight'
    """
    return _NUMBER.sub("N", path)


@dataclass(slots=True)
class Port:
    """Arguments or results with names that differ in numbers only.

    Attributes:
        id: number in the function.
        name: name, with N for numbers if there are several.
        type: dtype and shape, such as ``f32[1,64]``.
        count: number of arguments or results.
    """

    id: int
    name: str
    type: str
    count: int = 1


@dataclass(slots=True)
class Box:
    """Consecutive ops of one module, or a call of a block function.

    Attributes:
        id: number in the function.
        path: module path; empty at the root.
        calls: called block function; None if this is not a call.
        operations: number of occurrences by op, without constants and loads of parameters.
        parameters: types of the weights that are read, by path.
    """

    id: int
    path: str
    calls: str | None = None
    operations: dict[str, int] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Repeat:
    """Items that occur ``count`` times in a row."""

    count: int
    items: "list[Item]"


Item = Box | Repeat
"""Box of an outline, or a stretch of boxes that repeats."""


def boxes_of(items: Iterable[Item]) -> Iterator[Box]:
    """Yields the boxes of items, in order."""
    for item in items:
        if isinstance(item, Box):
            yield item
        else:
            yield from boxes_of(item.items)


@checked_choices
@dataclass(frozen=True, slots=True)
class Edge:
    """Value that goes from a box or an argument to another box or a result.

    Attributes:
        source: id of the box or port that has the value.
        target: id of the box or port that uses it.
        type: dtype and shape of the value.
        carried: whether it goes from one repetition to the next.
    """

    source: int
    target: int
    type: str
    carried: bool = False


@dataclass(slots=True)
class FunctionOutline:
    """Function of a module.

    Attributes:
        name: symbol.
        kind: ``entry_point``, ``kernel`` (a block function) or ``helper`` (shared by emission rules).
        arguments: arguments.
        results: results.
        items: boxes and repetitions, in order.
        edges: values between parts; for repeated items the union over all repetitions.
        operations: number of ops in the text, without constants and loads.
        call_sites: number of calls of the function.
    """

    name: str
    kind: str
    arguments: list[Port] = field(default_factory=list)
    results: list[Port] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    operations: int = 0
    call_sites: int = 0


@dataclass(slots=True)
class Outline:
    """Outline of a module.

    Attributes:
        functions: entry points, then kernels.
        omitted: number of further kernels.
    """

    functions: list[FunctionOutline] = field(default_factory=list)
    omitted: int = 0
