"""Units of differentiation: nodes, and calls of composites that have a rule."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from compile_dag._node import Call, Node, Value
from compile_dag.gradient._rules import COMPOSITE_RULES

_OUTSIDE: Final = -1


class Unit:
    """One thing to differentiate: an op, or a call of a composite.

    Attributes:
        node: node of the op; of a call the last one of its body.
        call: call of a composite; None for an op.
        nodes: all nodes that belong to it.
    """

    __slots__ = ("call", "node", "nodes")

    def __init__(self, nodes: Sequence[Node], call: Call | None) -> None:
        self.node: Final = nodes[-1]
        self.call: Final = call
        self.nodes: Final = nodes

    @property
    def inputs(self) -> tuple[Value, ...]:
        """Values that it takes; of a call in the order of its inputs, and no more than those."""
        if self.call is None:
            return self.node.inputs
        return tuple(operand for operand in self.call.inputs if isinstance(operand, Value))

    @property
    def results(self) -> tuple[Value, ...]:
        """Values that it gives."""
        return self.node.results if self.call is None else self.call.results


def units_of(nodes: Sequence[Node], outputs: Iterable[Value], active: set[int]) -> list[Unit]:
    """Returns the nodes in order, those of a call that has a rule as one unit: of nested calls the outermost possible.

    A call can be taken as one if its inputs exist before its first node, its results are made by its nodes, nothing
    outside uses their other values, and their only relevant outside values are the inputs. A pass may have broken that,
    by merging or leaving out nodes; so may a body that uses more than it is given.

    Args:
        nodes: nodes in order.
        outputs: values that are used beyond the nodes.
        active: numbers of the values that need gradients.
    """
    whole = _whole_calls(nodes, outputs, active)
    units: list[Unit] = []
    taken: dict[Call, list[Node]] = {}
    for node in nodes:
        call = next((call for call in reversed(_calls_of(node)) if call in whole), None)
        if call is None:
            units.append(Unit([node], None))
        else:
            members = taken.setdefault(call, [])
            members.append(node)
            if len(members) == whole[call]:
                units.append(Unit(members, call))
    return units


def _calls_of(node: Node) -> list[Call]:
    """Returns the calls that have a rule and that the node was recorded in, innermost first."""
    calls: list[Call] = []
    call = node.call
    while call is not None:
        if call.name in COMPOSITE_RULES:
            calls.append(call)
        call = call.outer
    return calls


def _whole_calls(nodes: Sequence[Node], outputs: Iterable[Value], active: set[int]) -> dict[Call, int]:
    """Returns the calls that can be taken as one, each with the number of its nodes."""
    sizes: dict[Call, int] = {}
    first: dict[Call, int] = {}
    made_at: dict[int, int] = {}
    calls_at: list[list[Call]] = []
    broken: set[Call] = set()
    for index, node in enumerate(nodes):
        around = _calls_of(node)
        calls_at.append(around)
        for call in around:
            sizes[call] = sizes.get(call, 0) + 1
            first.setdefault(call, index)
        for value in node.inputs:
            broken.update(_left(value, calls_at, made_at, around))
            if value.number in active:
                broken.update(_entered(value, calls_at, made_at, around))
        made_at.update((value.number, index) for value in node.results)
    for value in outputs:
        broken.update(_left(value, calls_at, made_at, []))
    broken.update(call for call in sizes if not _stands_alone(call, first[call], calls_at, made_at))
    return {call: size for call, size in sizes.items() if call not in broken}


def _left(value: Value, calls_at: list[list[Call]], made_at: dict[int, int], user: list[Call]) -> Iterator[Call]:
    """Yields the calls that contain the value's node but not its user, and that do not return the value."""
    for call in calls_at[made_at[value.number]] if value.number in made_at else ():
        if call not in user and not any(value is result for result in call.results):
            yield call


def _entered(value: Value, calls_at: list[list[Call]], made_at: dict[int, int], user: list[Call]) -> Iterator[Call]:
    """Yields the calls that the user is part of, that did not make the value, and that were not given it."""
    makers = calls_at[made_at[value.number]] if value.number in made_at else []
    for call in user:
        if call not in makers and not any(value is operand for operand in call.inputs):
            yield call


def _stands_alone(call: Call, first: int, calls_at: list[list[Call]], made_at: dict[int, int]) -> bool:
    before = all(made_at.get(operand.number, _OUTSIDE) < first for operand in call.inputs if isinstance(operand, Value))
    own = all(
        isinstance(result, Value) and result.number in made_at and call in calls_at[made_at[result.number]]
        for result in call.results
    )
    return before and own and bool(call.results)
