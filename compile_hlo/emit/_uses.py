"""What makes and what uses the values of a stretch."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from compile_dag import Node, Value


class Uses:
    """Of nodes that follow each other.

    Args:
        nodes: of a stretch.
        results: of the nodes, those that are used later.
        leaves: constants and parameters of before, by the numbers of their values.
    """

    def __init__(self, nodes: Sequence[Node], results: Iterable[Value], leaves: Mapping[int, Node]) -> None:
        self._leaves: Final = leaves
        self._makers: Final = {id(value): node for node in nodes for value in node.results}
        self._later: Final = frozenset(map(id, results))
        self._users: Final[dict[int, dict[int, Node]]] = {}
        for node in nodes:
            for value in node.inputs:
                self._users.setdefault(id(value), {})[id(node)] = node

    def maker(self, value: Value, op_name: str) -> Node | None:
        """The node that makes a value, if it is of this op and of the stretch."""
        node = self._makers.get(id(value))
        return node if node is not None and node.op.name == op_name else None

    def only_user(self, value: Value, op_name: str) -> Node | None:
        """The node that is alone in using a value, if it is of this op."""
        users = self._users.get(id(value), {})
        if len(users) != 1 or id(value) in self._later:
            return None
        (node,) = users.values()
        return node if node.op.name == op_name else None

    def number(self, value: Value) -> float | None:
        """A constant of one element."""
        node = self._makers.get(id(value)) or self._leaves.get(value.number)
        if node is None or node.op.name != "constant" or value.spec.size != 1:
            return None
        return float(node.attributes[0].array.reshape(()))

    def without(self, nodes: Iterable[Node], unneeded: set[int]) -> list[Node]:
        """The nodes without those of ``unneeded`` (by ``id``) that none of the others needs any more."""
        live, kept = set(self._later), []
        for node in reversed(list(nodes)):
            if id(node) in unneeded and not any(id(value) in live for value in node.results):
                continue
            kept.append(node)
            live.update(map(id, node.inputs))
        return kept[::-1]
