"""Groups in a stretch: composites as recorded, with the ops after them.

Each dispatch between products is a wait. Values between the parts of a group must have only these uses; then the text
computes nothing twice. A tag is a use.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from compile_dag import Node, Value
from compile_hlo.passes._groups import Chain, Group
from compile_hlo.passes._uses import Uses


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
