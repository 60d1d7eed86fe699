"""What an outline consists of."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

_NUMBER: Final = re.compile(r"(?<![^.])\d+(?![^.])")


def without_numbers(path: str) -> str:
    """A module path with N for its numbers.

    >>> without_numbers("model.layers.3.norm1.weight")
    'model.layers.N.norm1.weight'
    """
    return _NUMBER.sub("N", path)


@dataclass(slots=True)
class Port:
    """Arguments or results that differ in the numbers of their names only.

    Attributes:
        id: its number in the function.
        name: with N for numbers where there are several.
        type: such as ``f32[1,64]``.
        count: how many there are.
    """

    id: int
    name: str
    type: str
    count: int = 1


@dataclass(slots=True)
class Box:
    """Consecutive ops of one module, or the call of a block function.

    Attributes:
        id: its number in the function.
        path: of the module; empty at the root.
        calls: the block function, where this is a call.
        operations: how often each op occurs; constants and loads of parameters do not count.
        parameters: type by path of the weights that are read.
    """

    id: int
    path: str
    calls: str | None = None
    operations: dict[str, int] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Repeat:
    """Items that occur so many times in a row."""

    count: int
    items: "list[Item]"


Item = Box | Repeat


def boxes_of(items: Iterable[Item]) -> Iterator[Box]:
    """The boxes of items, in order."""
    for item in items:
        if isinstance(item, Box):
            yield item
        else:
            yield from boxes_of(item.items)


@dataclass(frozen=True, slots=True)
class Edge:
    """A value of one box, or argument, is used by another box, or is a result.

    Attributes:
        source: the id of the box or port that has it.
        target: the id of the box or port that takes it.
        type: of the value.
        carried: it goes from one repetition to the next.
    """

    source: int
    target: int
    type: str
    carried: bool = False


@dataclass(slots=True)
class FunctionOutline:
    """A function of the module.

    Attributes:
        name: its symbol.
        kind: ``entry_point``; ``kernel``, which is a block function; or ``helper``, what emission rules share.
        arguments: what it takes.
        results: what it gives.
        items: what it does, in order.
        edges: what goes where: of repeated items the union over all repetitions.
        operations: how many ops its text has, repeated ones included, constants and loads not.
        call_sites: how often the function is called.
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
    """A module.

    Attributes:
        functions: entry points, then kernels.
        omitted: how many kernels there are beyond those.
    """

    functions: list[FunctionOutline] = field(default_factory=list)
    omitted: int = 0
