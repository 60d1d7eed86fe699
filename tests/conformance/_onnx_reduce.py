"""Adapters of ONNX's reductions, running sums and order."""

import math
from typing import Final

import numpy as np

from lang_core import Tensor, bool_, i64, u8
from tests.conformance._onnx_elementwise import floating_operand
from tests.conformance._onnx_node import Node, NotExpressible, adapts, axis_of


def _axes(node: Node, ndim: int) -> tuple[int, ...]:
    """All axes where none is given, unless the node says otherwise."""
    given = node.ints_of("axes", 1)
    if not given:
        return () if node.attribute("noop_with_empty_axes", 0) else tuple(range(ndim))
    return tuple(axis_of(axis, ndim) for axis in given)


def _kept(node: Node) -> bool:
    return bool(node.attribute("keepdims", 1))


@adapts("ReduceMax", "ReduceMin")
def _extreme(node: Node) -> Tensor:
    ops, x, largest = node.ops, node.tensor(0), node.kind == "ReduceMax"
    axes, keep = _axes(node, x.ndim), _kept(node)
    if x.dtype is bool_:
        return (ops.any if largest else ops.all)(x, axes, keep)
    if math.prod(x.shape[axis] for axis in axes):
        return (ops.max if largest else ops.min)(x, axes, keep)
    shape = np.zeros(x.shape).sum(axis=axes, keepdims=keep).shape
    if x.dtype.is_floating:
        return ops.full(shape, -math.inf if largest else math.inf, x.dtype)
    limits = np.iinfo(x.dtype.numpy)
    return ops.full(shape, int(limits.min if largest else limits.max), x.dtype)


@adapts("ReduceSum", "ReduceProd", "ReduceL1", "ReduceSumSquare")
def _sums(node: Node) -> Tensor:
    ops, x = node.ops, node.tensor(0)
    if node.kind == "ReduceL1" and x.dtype is not u8:
        x = ops.abs(x)
    if node.kind == "ReduceSumSquare":
        x = ops.mul(x, x)
    return (ops.prod if node.kind == "ReduceProd" else ops.sum)(x, _axes(node, x.ndim), _kept(node))


@adapts("ReduceMean", "ReduceL2", "ReduceLogSum")
def _of_sums(node: Node) -> Tensor:
    ops, (x, dtype) = node.ops, floating_operand(node)
    axes, keep = _axes(node, x.ndim), _kept(node)
    if node.kind == "ReduceMean":
        result = ops.mean(x, axes, keep)
    elif node.kind == "ReduceL2":
        result = ops.sqrt(ops.sum(ops.mul(x, x), axes, keep))
    else:
        result = ops.log(ops.sum(x, axes, keep))
    return ops.cast(result, dtype)


@adapts("ReduceLogSumExp")
def _log_sum_exp(node: Node) -> Tensor:
    ops, (x, dtype) = node.ops, floating_operand(node)
    axes, keep = _axes(node, x.ndim), _kept(node)
    if not math.prod(x.shape[axis] for axis in axes):
        return ops.cast(ops.log(ops.sum(ops.exp(x), axes, keep)), dtype)
    largest = ops.max(x, axes, keepdims=True)
    finite = ops.less(ops.abs(largest), math.inf)
    largest = ops.select(finite, largest, 0.0)  # of infinities alone: exp(-inf - -inf) would be NaN
    total = ops.log(ops.sum(ops.exp(ops.sub(x, largest)), axes, keepdims=True))
    result = ops.add(total, largest)
    return ops.cast(result if keep else ops.reshape(result, ops.sum(x, axes).shape), dtype)


@adapts("ArgMax", "ArgMin")
def _arg(node: Node) -> Tensor:
    ops, x = node.ops, node.tensor(0)
    axis = axis_of(node.attribute("axis", 0), x.ndim)
    last = bool(node.attribute("select_last_index", 0))
    x = ops.reverse(x, (axis,)) if last else x
    result = (ops.argmax if node.kind == "ArgMax" else ops.argmin)(x, axis, _kept(node))
    result = ops.cast(result, i64)
    return ops.sub(x.shape[axis] - 1, result) if last else result


@adapts("CumSum", "CumProd")
def _running(node: Node) -> Tensor:
    """The exclusive sum is the inclusive one of the elements moved by one, so that nothing is subtracted."""
    ops, x = node.ops, node.tensor(0)
    (axis,) = node.ints(1)
    axis = axis_of(axis, x.ndim)
    backwards = bool(node.attribute("reverse", 0))
    x = ops.reverse(x, (axis,)) if backwards else x
    neutral = 0 if node.kind == "CumSum" else 1
    if node.attribute("exclusive", 0):
        x = moved(node, x, axis, 1, neutral)
    x = ops.cumsum(x, axis) if node.kind == "CumSum" else _products(node, x, axis)
    return ops.reverse(x, (axis,)) if backwards else x


def moved(node: Node, x: Tensor, axis: int, by: int, filler: int) -> Tensor:
    """The elements moved along an axis towards its end; what leaves is lost, ``filler`` comes in."""
    size = x.shape[axis]
    kept = node.ops.slice_axis(x, axis, 0, max(size - by, 0))
    low = [0] * x.ndim
    low[axis] = min(by, size)
    return node.ops.pad(kept, low, [0] * x.ndim, filler)


def _products(node: Node, x: Tensor, axis: int) -> Tensor:
    """Running products: for each place the product over all places, of which later ones count as 1."""
    ops, size = node.ops, x.shape[axis]
    square = (*x.shape[:axis], size, size, *x.shape[axis + 1 :])
    earlier = ops.less_equal(ops.iota(square, axis + 1), ops.iota(square, axis))
    row = ops.reshape(x, (*x.shape[:axis], 1, *x.shape[axis:]))
    return ops.prod(ops.select(earlier, row, ops.ones((), x.dtype)), axis + 1)


@adapts("TopK")
def _top_k(node: Node) -> list[Tensor]:
    ops, x = node.ops, node.tensor(0)
    axis = axis_of(node.attribute("axis", -1), x.ndim)
    (k,) = node.ints(1) if node.has(1) else (node.attribute("k"),)
    if node.attribute("largest", 1):
        values, indices = ops.top_k(x, k, axis)
    else:
        values, indices = (ops.slice_axis(result, axis, 0, k) for result in ops.sort(x, axis))
    return [values, ops.cast(indices, i64)]


_DATA_DEPENDENT: Final = "the result's shape depends on the data"


@adapts("NonZero", "Compress", "Unique", "NonMaxSuppression")
def _data_dependent(node: Node) -> Tensor:
    raise NotExpressible(_DATA_DEPENDENT)
