"""Adapters of ONNX's gathers and scatters. Indices below 0 count from the end there, and are clamped here."""

import math
from collections.abc import Sequence

import numpy as np

from lang_core import Tensor, i32, i64
from lang_core.ops import Ops
from tests.conformance._onnx_node import Node, NotExpressible, adapts, axis_of


def from_start(ops: Ops, indices: Tensor, size: int) -> Tensor:
    """Indices of an axis, counted from its start."""
    indices = indices if indices.dtype is i64 else ops.cast(indices, i32)
    return ops.select(ops.less(indices, 0), ops.add(indices, size), indices)


@adapts("Gather")
def _gather(node: Node) -> Tensor:
    x = node.tensor(0)
    axis = axis_of(node.attribute("axis", 0), x.ndim)
    return node.ops.take(x, from_start(node.ops, node.tensor(1), x.shape[axis]), axis)


def _flat_places(ops: Ops, indices: Tensor, shape: Sequence[int], axis: int) -> Tensor:
    """Returns the flat positions of elements (.., indices[.., i, ..], ..) in a tensor of this shape."""
    places = ops.zeros(indices.shape, i64)
    for i in range(len(shape)):
        along = ops.cast(indices, i64) if i == axis else ops.iota(indices.shape, i, i64)
        places = ops.add(places, ops.mul(along, math.prod(shape[i + 1 :])))
    return places


@adapts("GatherElements")
def _gather_elements(node: Node) -> Tensor:
    ops, x = node.ops, node.tensor(0)
    axis = axis_of(node.attribute("axis", 0), x.ndim)
    indices = from_start(ops, node.tensor(1), x.shape[axis])
    if _same_beside(x.shape, indices.shape, axis):
        return ops.gather(x, indices, axis)
    return ops.take(ops.reshape(x, (-1,)), _flat_places(ops, indices, x.shape, axis))


def _same_beside(a: Sequence[int], b: Sequence[int], axis: int) -> bool:
    return [*a[:axis], *a[axis + 1 :]] == [*b[:axis], *b[axis + 1 :]]


def _rows(ops: Ops, indices: Tensor, dims: Sequence[int]) -> Tensor:
    """The flat place of each index tuple [.., k] in axes of these sizes."""
    strides = np.array([math.prod(dims[i + 1 :]) for i in range(len(dims))], np.int64)
    whole = ops.cast(indices, i64)
    whole = ops.select(ops.less(whole, 0), ops.add(whole, ops.constant(np.array(dims, np.int64))), whole)
    return ops.sum(ops.mul(whole, ops.constant(strides)), -1)


@adapts("GatherND")
def _gather_nd(node: Node) -> Tensor:
    ops, x, indices = node.ops, node.tensor(0), node.tensor(1)
    batch = node.attribute("batch_dims", 0)
    depth = indices.shape[-1]
    outer, dims, rest = x.shape[:batch], x.shape[batch : batch + depth], x.shape[batch + depth :]
    places = ops.reshape(_rows(ops, indices, dims), (math.prod(outer), -1))
    places = ops.add(places, ops.mul(ops.iota(places.shape, 0, i64), math.prod(dims)))
    flat = ops.reshape(x, (math.prod(outer) * math.prod(dims), *rest))
    return ops.reshape(ops.take(flat, ops.reshape(places, (-1,))), (*indices.shape[:-1], *rest))


def _reduction(node: Node) -> str:
    reduction = node.attribute("reduction", "none")
    return "set" if reduction == "none" else reduction


@adapts("ScatterElements", "Scatter")
def _scatter_elements(node: Node) -> Tensor:
    ops, x, updates = node.ops, node.tensor(0), node.tensor(2)
    axis = axis_of(node.attribute("axis", 0), x.ndim)
    indices = from_start(ops, node.tensor(1), x.shape[axis])
    if _same_beside(x.shape, indices.shape, axis):
        return ops.scatter(x, indices, updates, axis, _reduction(node))
    places = ops.reshape(_flat_places(ops, indices, x.shape, axis), (-1,))
    flat = ops.scatter(ops.reshape(x, (-1,)), places, ops.reshape(updates, (-1,)), 0, _reduction(node))
    return ops.reshape(flat, x.shape)


@adapts("ScatterND")
def _scatter_nd(node: Node) -> Tensor:
    ops, x, indices, updates = node.ops, node.tensor(0), node.tensor(1), node.tensor(2)
    dims, rest = x.shape[: indices.shape[-1]], x.shape[indices.shape[-1] :]
    places = ops.reshape(_rows(ops, indices, dims), (-1, 1))
    count, width = places.shape[0], math.prod(rest)
    flat = ops.scatter(
        ops.reshape(x, (math.prod(dims), width)),
        ops.broadcast(places, (count, width)),
        ops.reshape(updates, (count, width)),
        0,
        _reduction(node),
    )
    return ops.reshape(flat, x.shape)


@adapts("TensorScatter")
def _tensor_scatter(node: Node) -> Tensor:
    """Writes each batch's update at its own position along an axis: what a cache does."""
    ops, x, update = node.ops, node.tensor(0), node.tensor(1)
    axis = axis_of(node.attribute("axis", -2), x.ndim)
    places = ops.iota((x.shape[0], update.shape[axis]), 1, i64)
    if node.has(2):
        places = ops.add(places, ops.cast(ops.reshape(node.tensor(2), (-1, 1)), i64))
    if node.attribute("mode", "linear") == "circular":
        places = ops.rem(places, x.shape[axis])
    return ops.put(x, places, update, axis)


@adapts("ReverseSequence")
def _reverse_sequence(node: Node) -> Tensor:
    """The first ``lengths[b]`` elements of each batch turned round."""
    ops, x = node.ops, node.tensor(0)
    time, batch = node.attribute("time_axis", 0), node.attribute("batch_axis", 1)
    if x.ndim < 2:
        raise NotExpressible("ReverseSequence of less than two axes")
    lengths = ops.reshape(node.tensor(1), [x.shape[batch] if i == batch else 1 for i in range(x.ndim)])
    place = ops.iota(x.shape, time, i64)
    turned = ops.sub(ops.sub(ops.cast(lengths, i64), 1), place)
    return ops.gather(x, ops.select(ops.less(turned, 0), place, turned), time)
