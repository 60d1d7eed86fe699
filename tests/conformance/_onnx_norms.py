"""Adapters of ONNX's normalisations."""

import math

from lang_core import Tensor, f32
from tests.conformance._onnx_elementwise import floating_operand
from tests.conformance._onnx_node import Node, NotExpressible, adapts, axis_of


def _stash(node: Node) -> None:
    if node.attribute("stash_type", 1) != 1:
        raise NotExpressible("statistics are f32 or wider, never narrower")


@adapts("LayerNormalization")
def _layer_norm(node: Node) -> list[Tensor | None]:
    """Over all axes from one on; they are made one."""
    ops, x = node.ops, node.tensor(0)
    _stash(node)
    axis, eps = axis_of(node.attribute("axis", -1), x.ndim), node.attribute("epsilon", 1e-5)
    shape = (*x.shape[:axis], math.prod(x.shape[axis:]))
    flat = ops.reshape(x, shape)
    weight, bias = (_one_row(node, i, x.shape[axis:]) for i in (1, 2))
    result = ops.reshape(ops.layer_norm(flat, weight, bias, eps), x.shape)
    if not (node.wants(1) or node.wants(2)):
        return [result]
    values = ops.cast(flat, f32)
    mean = ops.mean(values, -1, keepdims=True)
    centred = ops.sub(values, mean)
    scale = ops.rsqrt(ops.add(ops.mean(ops.mul(centred, centred), -1, keepdims=True), eps))
    one = (*x.shape[:axis], *[1] * (x.ndim - axis))
    return [result, ops.reshape(mean, one), ops.reshape(scale, one)]


def _one_row(node: Node, index: int, shape: tuple[int, ...]) -> Tensor | None:
    """A scale or bias, broadcast over the normalised axes, as one axis."""
    result = node.optional(index)
    return None if result is None else node.ops.reshape(node.ops.broadcast(result, shape), (-1,))


@adapts("RMSNormalization")
def _rms_norm(node: Node) -> Tensor:
    ops, x = node.ops, node.tensor(0)
    _stash(node)
    axis = axis_of(node.attribute("axis", -1), x.ndim)
    flat = ops.reshape(x, (*x.shape[:axis], math.prod(x.shape[axis:])))
    result = ops.rms_norm(flat, _one_row(node, 1, x.shape[axis:]), node.attribute("epsilon", 1e-5))
    return ops.reshape(result, x.shape)


@adapts("GroupNormalization", "InstanceNormalization")
def _group_norm(node: Node) -> Tensor:
    """x [B, C, spatial..]: a layer norm per group of channels, then scale and bias per channel."""
    ops, (x, dtype) = node.ops, floating_operand(node)
    groups = node.attribute("num_groups") if node.kind == "GroupNormalization" else x.shape[1]
    if node.kind == "GroupNormalization" and node.opset < 21:
        raise NotExpressible("GroupNormalization before operator set 21, whose scale is per group")
    flat = ops.reshape(x, (x.shape[0], groups, -1))
    normed = ops.reshape(ops.layer_norm(flat, eps=node.attribute("epsilon", 1e-5)), x.shape)
    return ops.cast(_per_channel(node, normed, node.tensor(1), node.tensor(2)), dtype)


def _per_channel(node: Node, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    shape = (-1, *[1] * (x.ndim - 2))
    scale, bias = (node.ops.reshape(node.ops.cast(part, x.dtype), shape) for part in (scale, bias))
    return node.ops.add(node.ops.mul(x, scale), bias)


@adapts("BatchNormalization")
def _batch_norm(node: Node) -> list[Tensor]:
    """Normalises with running statistics, or in training with the batch's own, which move the running ones."""
    ops, (x, dtype) = node.ops, floating_operand(node)
    mean, variance = (ops.cast(node.tensor(i), x.dtype) for i in (3, 4))
    after = []
    if node.attribute("training_mode", 0):
        axes, momentum = [axis for axis in range(x.ndim) if axis != 1], node.attribute("momentum", 0.9)
        running = mean, variance
        mean = ops.mean(x, tuple(axes), keepdims=True)
        centred = ops.sub(x, mean)
        variance = ops.mean(ops.mul(centred, centred), tuple(axes))
        mean = ops.reshape(mean, (-1,))
        for old, new in zip(running, (mean, variance), strict=True):
            after.append(ops.add(ops.mul(old, momentum), ops.mul(new, 1 - momentum)))
    shape = (-1, *[1] * (x.ndim - 2))
    scale = ops.rsqrt(ops.add(ops.reshape(variance, shape), node.attribute("epsilon", 1e-5)))
    normed = ops.mul(ops.sub(x, ops.reshape(mean, shape)), scale)
    result = ops.cast(_per_channel(node, normed, node.tensor(1), node.tensor(2)), dtype)
    return [result, *(ops.cast(new, node.tensor(3).dtype) for new in after)]


@adapts("LpNormalization")
def _lp_norm(node: Node) -> Tensor:
    """A vector of zeros stays."""
    ops, (x, dtype) = node.ops, floating_operand(node)
    axis = node.attribute("axis", -1)
    if node.attribute("p", 2) == 1:
        size = ops.sum(ops.abs(x), axis, keepdims=True)
    else:
        size = ops.sqrt(ops.sum(ops.mul(x, x), axis, keepdims=True))
    return ops.cast(ops.div(x, ops.select(ops.equal(size, 0), ops.full((), 1, x.dtype), size)), dtype)


@adapts("MeanVarianceNormalization")
def _mean_variance(node: Node) -> Tensor:
    ops, (x, dtype) = node.ops, floating_operand(node)
    axes = tuple(axis_of(axis, x.ndim) for axis in node.attribute("axes", (0, 2, 3)))
    centred = ops.sub(x, ops.mean(x, axes, keepdims=True))
    deviation = ops.sqrt(ops.mean(ops.mul(centred, centred), axes, keepdims=True))
    return ops.cast(ops.div(centred, ops.add(deviation, 1e-9)), dtype)


@adapts("LRN")
def _local_response(node: Node) -> Tensor:
    """Over neighbouring channels."""
    ops, (x, dtype), size = node.ops, floating_operand(node), node.attribute("size")
    below, above = (size - 1) // 2, size - 1 - (size - 1) // 2
    low, high = [0] * x.ndim, [0] * x.ndim
    low[1], high[1] = below, above
    squares = ops.pad(ops.mul(x, x), low, high)
    total = ops.slice_axis(squares, 1, 0, x.shape[1])
    for i in range(1, size):
        total = ops.add(total, ops.slice_axis(squares, 1, i, i + x.shape[1]))
    base = ops.add(ops.mul(total, node.attribute("alpha", 1e-4) / size), node.attribute("bias", 1.0))
    return ops.cast(ops.div(x, ops.pow(base, node.attribute("beta", 0.75))), dtype)
