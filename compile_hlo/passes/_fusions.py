"""Groups in a stretch: composites as recorded, with the ops after them.

Each dispatch between products is a wait. Values between the parts of a group must have only these uses; then the text
computes nothing twice. A tag is a use.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from compile_dag import Call, Node, Value
from compile_hlo.passes._groups import Chain, Group

LEAVES: Final = ("constant", "parameter")


class WholeCall(NamedTuple):
    """Call of a composite with nodes that can be taken as one.

    Attributes:
        call: call.
        nodes: its nodes that are left in the stretch, in order.
    """

    call: Call
    nodes: list[Node]


class Uses:
    """Makers and users of values.

    Args:
        nodes: nodes of a stretch, in order.
        results: those of their results that are used later.
        leaves: constants and parameters of earlier stretches, by the numbers of their values.
    """

    def __init__(self, nodes: Sequence[Node], results: Iterable[Value], leaves: Mapping[int, Node]) -> None:
        self._nodes: Final = nodes
        self._leaves: Final = leaves
        self._makers: Final = {value.number: node for node in nodes for value in node.results}
        self._later: Final = frozenset(value.number for value in results)
        self._users: Final[dict[int, list[Node]]] = {}
        self._members: dict[Call, list[Node]] | None = None
        for node in nodes:
            for number in {value.number for value in node.inputs}:
                self._users.setdefault(number, []).append(node)

    def maker(self, value: Value, op_name: str) -> Node | None:
        """Returns the node that makes a value, if it is of this op and of the stretch."""
        node = self._makers.get(value.number)
        return node if node is not None and node.op.name == op_name else None

    def only_user(self, value: Value) -> Node | None:
        """Returns the node that is alone in using a value."""
        users = self._users.get(value.number, [])
        return users[0] if len(users) == 1 and value.number not in self._later else None

    def call_of(self, value: Value, name: str) -> WholeCall | None:
        """Returns the call of a composite with this value as its only result, if its nodes can be taken as one.

        They can if they use only the call's inputs, and their intermediate values have no other users. Casts of the
        inputs and constants do not count: equal ones have been merged with those of others.
        """
        node = self._makers.get(value.number)
        for call in () if node is None else _calls_around(node):
            if call.name == name and [result.number for result in call.results] == [value.number]:
                whole = WholeCall(call, self._nodes_of(call))
                return whole if self._stands_alone(whole) else None
        return None

    def _nodes_of(self, call: Call) -> list[Node]:
        if self._members is None:
            self._members = {}
            for node in self._nodes:
                for around in _calls_around(node) if node.op.name not in LEAVES else ():
                    self._members.setdefault(around, []).append(node)
        return self._members.get(call, [])

    def _stands_alone(self, whole: WholeCall) -> bool:
        given = {value.number for value in whole.call.inputs if isinstance(value, Value)}
        result = whole.call.results[0].number
        own = {value.number for node in whole.nodes for value in node.results}
        for node in whole.nodes:
            for value in node.inputs:
                if value.number not in own and value.number not in given and not self._is_free(value, given):
                    return False
            if _is_cast(node, given):
                continue
            for value in node.results:
                users = self._users.get(value.number, [])
                outside = value.number in self._later or any(user not in whole.nodes for user in users)
                if outside and value.number != result:
                    return False
        return True

    def _is_free(self, value: Value, given: set[int]) -> bool:
        """Returns whether a value is a constant or a parameter, or a cast of a given one."""
        node = self._makers.get(value.number) or self._leaves.get(value.number)
        return node is not None and (node.op.name in LEAVES or _is_cast(node, given))

    def without(self, nodes: Iterable[Node], unneeded: set[Node]) -> list[Node]:
        """Returns the nodes without those of ``unneeded`` that none of the others needs any more."""
        live, kept = set(self._later), []
        for node in reversed(list(nodes)):
            if node in unneeded and not any(value.number in live for value in node.results):
                continue
            kept.append(node)
            live.update(value.number for value in node.inputs)
        return kept[::-1]


def _is_cast(node: Node, given: set[int]) -> bool:
    return node.op.name == "cast" and node.inputs[0].number in given


def _calls_around(node: Node) -> Iterator[Call]:
    """Yields the calls that the node was recorded in, innermost first, as far as they lie in one stretch."""
    call = node.call
    while call is not None and call.is_whole:
        yield call
        call = call.outer


class _Part(NamedTuple):
    """End of a chain that was found in a stretch, or a whole one.

    Attributes:
        inputs: values that it is given.
        attributes: attributes of the composite; empty without it.
        nodes: nodes, in order.
    """

    inputs: tuple[Value, ...]
    attributes: tuple[Any, ...]
    nodes: list[Node]


def with_groups(
    nodes: Sequence[Node], results: Iterable[Value], leaves: Mapping[int, Node], chains: Mapping[str, Sequence[Chain]]
) -> Sequence[Node]:
    """Returns the nodes of a stretch, some of them as groups. Valid stretch in, valid stretch out.

    Args:
        nodes: nodes, in order.
        results: those of their results that are used later.
        leaves: constants and parameters of earlier stretches, by the numbers of their values.
        chains: chains that become groups, by the names of their last ops.
    """
    if not any(node.op.name in chains for node in nodes):
        return nodes
    uses = Uses(nodes, results, leaves)
    groups: dict[Node, Group] = {}  # by the last member
    for node in nodes:
        fitting = [group for chain in chains.get(node.op.name, ()) for group in _groups(chain, node, uses)]
        if fitting:
            groups[node] = max(fitting, key=lambda group: len(group.members))  # of nested calls the outermost
    unneeded = {member for group in groups.values() for member in group.members}
    return uses.without([groups.get(node, node) for node in nodes], unneeded)


def _groups(chain: Chain, last: Node, uses: Uses) -> Iterator[Group]:
    """Yields the groups of a chain that end in a node and fit."""
    for part in _parts(chain, len(chain.then), last, uses):
        group = Group(chain.op, part.inputs, part.attributes, part.nodes)
        if chain.fits(group):
            yield group


def _parts(chain: Chain, length: int, last: Node, uses: Uses) -> Iterator[_Part]:
    """Yields the composite with the first ``length`` ops after it, the last of which is a node."""
    for place, value in enumerate(last.inputs):
        if uses.only_user(value) is not last:
            continue
        before = last.inputs[:place] + last.inputs[place + 1 :]
        for part in _begun(chain, value, uses) if length == 1 else _continued(chain, length - 1, value, uses):
            yield _Part(part.inputs + before, part.attributes, [*part.nodes, last])


def _continued(chain: Chain, length: int, value: Value, uses: Uses) -> Iterator[_Part]:
    node = uses.maker(value, chain.then[length - 1])
    if node is not None:
        yield from _parts(chain, length, node, uses)


def _begun(chain: Chain, value: Value, uses: Uses) -> Iterator[_Part]:
    """Yields the composite, or the op, that makes a value."""
    whole, node = uses.call_of(value, chain.composite), uses.maker(value, chain.composite)
    if whole is not None:
        given = tuple(operand for operand in whole.call.inputs if isinstance(operand, Value))
        yield _Part(given, whole.call.attributes, whole.nodes)
    elif node is not None:
        yield _Part(node.inputs, node.attributes, [node])
