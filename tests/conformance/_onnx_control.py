"""Adapters of ONNX's control flow. Loops whose number of rounds is known are unrolled."""

from collections.abc import Sequence

from lang_core import Tensor
from tests.conformance._onnx_node import Node, NotExpressible, Results, Value, adapts, axis_of


@adapts("If")
def _if(node: Node) -> Results:
    """Takes one branch where the condition is known, else both, whose results must have the same specs."""
    branches = node.graph_attribute("then_branch"), node.graph_attribute("else_branch")
    known = node.value(0).known
    if known is not None:
        return [_result(value) for value in node.run(branches[0 if known else 1], [])]
    then, other = (lambda branch=branch: node.tensors_of(node.run(branch, [])) for branch in branches)
    return list(node.ops.cond(node.ops.reshape(node.tensor(0), ()), then, other))


def _result(value: Value) -> Tensor:
    if value.tensor is None:
        raise NotExpressible("a branch that gives a value known at compile time: not adapted")
    return value.tensor


@adapts("Scan")
def _scan(node: Node) -> Results:
    """The body for each slice of the scanned operands in turn."""
    if node.opset < 9:
        raise NotExpressible("Scan before operator set 9, over a batch: not adapted")
    ops, body, scanned = node.ops, node.graph_attribute("body"), node.attribute("num_scan_inputs")
    count = len(node) - scanned
    values = [node.value(i) for i in range(count)]
    lines = []
    for i in range(scanned):
        x = node.tensor(count + i)
        axis = axis_of((node.attribute("scan_input_axes") or [0] * scanned)[i], x.ndim)
        parts = [_without(node, part, axis) for part in ops.split(x, [1] * x.shape[axis], axis)]
        lines.append(parts[::-1] if (node.attribute("scan_input_directions") or [0] * scanned)[i] else parts)
    collected: list[list[Tensor]] = []
    for parts in zip(*lines, strict=True):
        results = node.run(body, [*values, *(Value(tensor=part) for part in parts)])
        values = results[:count]
        collected.append(node.tensors_of(results[count:]))
    stacked = []
    for i, pieces in enumerate(zip(*collected, strict=True)):
        turned = (node.attribute("scan_output_directions") or [0] * len(pieces))[i]
        axis = (node.attribute("scan_output_axes") or [0] * len(collected[0]))[i]
        stacked.append(_stacked(node, pieces[::-1] if turned else pieces, axis))
    return [*node.tensors_of(values), *stacked]


def _without(node: Node, x: Tensor, axis: int) -> Tensor:
    return node.ops.reshape(x, [dim for i, dim in enumerate(x.shape) if i != axis])


def _stacked(node: Node, pieces: Sequence[Tensor], axis: int) -> Tensor:
    axis = axis_of(axis, pieces[0].ndim + 1)
    shape = pieces[0].shape
    return node.ops.concat([node.ops.reshape(p, (*shape[:axis], 1, *shape[axis:])) for p in pieces], axis)


@adapts("Loop")
def _loop(node: Node) -> Results:
    """Rounds and conditions must be known; the body's own results are stacked."""
    body = node.graph_attribute("body")
    (rounds,) = node.ints(0) if node.has(0) else (0,)
    if not node.has(0):
        raise NotExpressible("Loop without a number of rounds: not adapted")
    values = [node.value(i) for i in range(2, len(node))]
    going = Value(known=node.known(1)) if node.has(1) else Value(known=node.array(True))
    collected: list[list[Tensor]] = []
    for i in range(rounds):
        if going.known is None:
            raise NotExpressible("Loop whose condition depends on data: not adapted")
        if not going.known:
            break
        going, *results = node.run(body, [Value(known=node.array(i)), going, *values])
        values = results[: len(values)]
        collected.append(node.tensors_of(results[len(values) :]))
    if not collected and len(body.output) > 1 + len(values):
        raise NotExpressible("Loop of no round: not adapted")
    return [*node.tensors_of(values), *(_stacked(node, pieces, 0) for pieces in zip(*collected, strict=True))]
