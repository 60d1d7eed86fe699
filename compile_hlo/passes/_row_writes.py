"""Writes into rows of caches, which a model sees as matrices: a partitioner needs the heads that these hide."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from compile_dag import Node, Value
from compile_hlo.passes._groups import Group


class RowWrite(Group):
    """Write of slices into some rows of a tensor, with the reshapes around it; its op is ``put``.

    Its inputs are the tensor x, i32 places [1, n], the new slices, and ``where`` bool [1, n] if there is one. Either x
    is [N, K, S, H], new slices [B, K, T, H] and the n = B K T places are ``(row K + k) S + position``, in that order;
    or x is [N, ..], new slices [B, ..] and the n = B places are rows.

    Attributes:
        of_entries: whether places are those of entries; otherwise of rows.
    """

    __slots__ = ("of_entries",)

    def __init__(self, put: Node, x: Node, updates: Node, result: Node) -> None:
        inputs = x.inputs[0], put.inputs[1], updates.inputs[0], *put.inputs[3:]
        super().__init__(put.op, inputs, put.attributes, (x, updates, put, result))
        self.of_entries = put.inputs[0].shape[1] != x.inputs[0].shape[0]


def with_row_writes(nodes: Sequence[Node], needed: Collection[int]) -> Sequence[Node]:
    """Returns the nodes with writes into rows of tensors, seen as matrices, as one node each on the tensors themselves.

    Valid nodes in, valid nodes out.

    Args:
        nodes: nodes, in order.
        needed: numbers of the values that are used afterwards.
    """
    if not any(node.op.name == "put" for node in nodes):
        return nodes
    makers = {value.number: node for node in nodes for value in node.results}
    users = Counter(dict.fromkeys(needed, 1))
    users.update(value.number for node in nodes for value in node.inputs)
    shaped = {node.inputs[0].number: node for node in nodes if node.op.name == "reshape"}
    writes = {node: write for node in nodes if (write := _write_of(node, makers, shaped, users)) is not None}
    ends = {write.members[-1] for write in writes.values()}
    for write in writes.values():
        x, updates, put, _ = write.members
        users.subtract([x.results[0].number, updates.results[0].number, put.results[0].number])
    begins = {node for write in writes.values() for node in write.members[:2] if not users[node.results[0].number]}
    return [writes.get(node, node) for node in nodes if node not in ends and node not in begins]


def _write_of(
    put: Node, makers: Mapping[int, Node], shaped: Mapping[int, Node], users: Mapping[int, int]
) -> RowWrite | None:
    """Returns the write that a node is with the reshapes around it; None if it is none."""
    if put.op.name != "put":
        return None
    x, updates = (_reshape_of(put.inputs[place], makers) for place in (0, 2))
    result = shaped.get(put.results[0].number)
    if x is None or updates is None or result is None or users[put.results[0].number] != 1:
        return None
    whole, matrix, new = x.inputs[0].shape, put.inputs[0].shape, updates.inputs[0].shape
    if matrix[0] != 1 or put.attributes[0] != 1 or result.results[0].shape != whole or len(new) != len(whole):
        return None
    entries = len(whole) == 4 and matrix[1:] == (whole[0] * whole[1] * whole[2], whole[3]) and new[1] == whole[1]
    rows = len(whole) > 1 and matrix[1] == whole[0] and len(matrix) == 3 and new[1:] == whole[1:]
    return RowWrite(put, x, updates, result) if entries or rows else None


def _reshape_of(value: Value, makers: Mapping[int, Node]) -> Node | None:
    node = makers.get(value.number)
    return node if node is not None and node.op.name == "reshape" else None
