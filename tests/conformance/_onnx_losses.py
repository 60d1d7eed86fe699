"""Adapters of ONNX's losses."""

from lang_core import Tensor, i64
from lang_core.ops import Ops
from tests.conformance._onnx_elementwise import floating_operand
from tests.conformance._onnx_node import Node, adapts


@adapts("NegativeLogLikelihoodLoss")
def _likelihood(node: Node) -> Tensor:
    x, dtype = floating_operand(node)
    return node.ops.cast(_loss(node, x), dtype)


@adapts("SoftmaxCrossEntropyLoss")
def _cross_entropy(node: Node) -> list[Tensor]:
    x, dtype = floating_operand(node)
    logarithms = node.ops.log_softmax(x, 1)
    return [node.ops.cast(result, dtype) for result in (_loss(node, logarithms), logarithms)]


def _loss(node: Node, x: Tensor) -> Tensor:
    """Minus the logarithm of each target's probability, weighted by class; x [B, C, rest..], targets [B, rest..]."""
    ops, targets = node.ops, node.tensor(1)
    ignored, reduction = node.attribute("ignore_index"), node.attribute("reduction", "mean")
    places = ops.cast(targets, i64)
    weights = ops.ones(targets.shape, x.dtype)
    if node.has(2):
        weights = ops.take(ops.cast(node.tensor(2), x.dtype), places)
    if ignored is not None:
        weights = ops.select(ops.equal(places, ignored), ops.zeros((), x.dtype), weights)
    loss = ops.negate(ops.mul(_of_targets(ops, x, places), weights))
    if reduction == "none":
        return loss
    return ops.sum(loss) if reduction == "sum" else ops.div(ops.sum(loss), ops.sum(weights))


def _of_targets(ops: Ops, x: Tensor, places: Tensor) -> Tensor:
    row = ops.reshape(places, (places.shape[0], 1, *places.shape[1:]))
    return ops.reshape(ops.gather(x, row, 1), places.shape)
