"""Groups: nodes that one helper function computes at once, so that a target may have a kernel for it."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from compile_dag import Node, Value
from lang_core import GraphError, Op


class Group(Node):
    """A node that stands for several.

    Attributes:
        members: nodes that it stands for, in order.
        paths: module paths of the ops it stands for.
    """

    __slots__ = ("members", "paths")

    def __init__(self, op: Op, inputs: Sequence[Value], attributes: tuple[Any, ...], members: Sequence[Node]) -> None:
        last = members[-1]
        super().__init__(op, tuple(inputs), attributes, last.results, last.stretch)
        self.members: Final = members
        self.paths: Final = tuple(dict.fromkeys(node.path for node in members))


class Chain(NamedTuple):
    """Composite and the ops after it, each the only user of the result before; they become a group.

    Attributes:
        op: op of the group, which contexts do not have.
        composite: name of the composite, as it was recorded; or of an op.
        then: names of the ops after it.
        fits: returns whether a group can be computed at once.
    """

    op: Op
    composite: str
    then: tuple[str, ...]
    fits: Callable[[Group], bool]


def chain_of(composite: str, then: tuple[str, ...], fits: Callable[[Group], bool]) -> Chain:
    """Returns a chain; its op is named as its parts are."""
    name = "+".join((composite, *then))
    op = Op(name, attributes=(), summary=f"{name} at once.", shape_rule=_not_recorded, eager_rule=_not_recorded)
    return Chain(op, composite, then, fits)


def _not_recorded(*_: Any) -> NoReturn:
    raise GraphError("an op that stands for a group is made of recorded ones")
