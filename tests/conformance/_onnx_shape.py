"""Adapters of ONNX's ops that move elements or make tensors."""

import math
from collections.abc import Sequence

import numpy as np

from lang_core import Tensor, as_dtype, bool_, i64
from tests.conformance._onnx_node import Array, Node, NotExpressible, adapts, axis_of, dtype_numbered, dtype_of


@adapts("Shape")
def _shape(node: Node) -> Array:
    shape = node.shape(0)
    return np.array(shape[node.attribute("start", 0) : node.attribute("end")], np.int64)


@adapts("Size")
def _size(node: Node) -> Array:
    return np.array(math.prod(node.shape(0)), np.int64)


@adapts("Reshape")
def _reshape(node: Node) -> Tensor:
    x, wanted = node.tensor(0), node.ints_of("shape", 1) or []
    if not node.attribute("allowzero", 0):
        wanted = [x.shape[i] if dim == 0 else dim for i, dim in enumerate(wanted)]
    return node.ops.reshape(x, wanted)


@adapts("Flatten")
def _flatten(node: Node) -> Tensor:
    x = node.tensor(0)
    axis = axis_of(node.attribute("axis", 1), x.ndim)
    return node.ops.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@adapts("Squeeze")
def _squeeze(node: Node) -> Tensor:
    x, axes = node.tensor(0), node.ints_of("axes", 1)
    chosen = [i for i, dim in enumerate(x.shape) if dim == 1] if axes is None else [axis_of(a, x.ndim) for a in axes]
    return node.ops.reshape(x, [dim for i, dim in enumerate(x.shape) if i not in chosen])


@adapts("Unsqueeze")
def _unsqueeze(node: Node) -> Tensor:
    x, axes = node.tensor(0), node.ints_of("axes", 1) or []
    ndim = x.ndim + len(axes)
    chosen, left = {axis_of(axis, ndim) for axis in axes}, iter(x.shape)
    return node.ops.reshape(x, [1 if i in chosen else next(left) for i in range(ndim)])


@adapts("Transpose")
def _transpose(node: Node) -> Tensor:
    return node.ops.transpose(node.tensor(0), node.attribute("perm"))


@adapts("Expand")
def _expand(node: Node) -> Tensor:
    x = node.tensor(0)
    return node.ops.broadcast(x, np.broadcast_shapes(x.shape, tuple(node.ints(1))))


@adapts("Tile")
def _tile(node: Node) -> Tensor:
    """Each axis gets one of length ``repeats`` before it, over which x is broadcast."""
    ops, x, repeats = node.ops, node.tensor(0), node.ints(1)
    apart = ops.reshape(x, [size for dim in x.shape for size in (1, dim)])
    spread = ops.broadcast(apart, [size for pair in zip(repeats, x.shape, strict=True) for size in pair])
    return ops.reshape(spread, [a * b for a, b in zip(repeats, x.shape, strict=True)])


@adapts("Concat")
def _concat(node: Node) -> Tensor:
    return node.ops.concat(node.tensors(), node.attribute("axis", 1))


@adapts("Split")
def _split(node: Node) -> list[Tensor | Array | None]:
    x = node.tensor(0)
    axis = axis_of(node.attribute("axis", 0), x.ndim)
    sizes = node.ints_of("split", 1)
    if sizes is None:  # equal ones; the last may be smaller
        count = node.attribute("num_outputs") or len(node.proto.output)
        size = -(-x.shape[axis] // count)
        sizes = [min(size, x.shape[axis] - i * size) for i in range(count)]
    return list(node.ops.split(x, sizes, axis))


@adapts("Slice")
def _slice(node: Node) -> Tensor:
    """Backwards by turning the axis round first."""
    x = node.tensor(0)
    starts, stops = node.ints_of("starts", 1) or [], node.ints_of("ends", 2) or []
    axes = node.ints_of("axes", 3)
    axes = range(len(starts)) if axes is None else [axis_of(axis, x.ndim) for axis in axes]
    steps = node.ints(4) if node.has(4) else [1] * len(starts)
    first, last, step, turned = [0] * x.ndim, list(x.shape), [1] * x.ndim, []
    for axis, *bounds in zip(axes, starts, stops, steps, strict=True):
        size = x.shape[axis]
        positions = range(size)[slice(*bounds)]
        begin = positions.start
        if bounds[2] < 0:
            turned.append(axis)
            begin = size - 1 - begin
        step[axis] = abs(bounds[2])
        first[axis] = begin if len(positions) else 0
        last[axis] = begin + (len(positions) - 1) * step[axis] + 1 if len(positions) else 0
    x = node.ops.reverse(x, turned) if turned else x
    return node.ops.slice(x, first, last, step)


@adapts("Pad")
def _pad(node: Node) -> Tensor:
    ops, x = node.ops, node.tensor(0)
    amounts = node.ints_of("pads", 1) or []
    axes = [axis_of(axis, x.ndim) for axis in node.ints(3)] if node.has(3) else range(x.ndim)
    low, high = [0] * x.ndim, [0] * x.ndim
    for i, axis in enumerate(axes):
        low[axis], high[axis] = amounts[i], amounts[len(axes) + i]
    mode = node.attribute("mode", "constant")
    if mode == "constant":
        start, stop = [max(-a, 0) for a in low], [dim + min(a, 0) for dim, a in zip(x.shape, high, strict=True)]
        x = ops.slice(x, start, stop) if min(*low, *high, 0) < 0 else x
        value = node.optional(2) if node.has(2) else node.attribute("value", 0)
        filler = value if isinstance(value, Tensor) else ops.constant(value, x.dtype)
        return ops.pad(x, [max(a, 0) for a in low], [max(a, 0) for a in high], ops.reshape(filler, ()))
    for axis in range(x.ndim):
        places = _padded_places(mode, x.shape[axis], low[axis], high[axis])
        if places != list(range(x.shape[axis])):
            x = ops.take(x, ops.constant(np.array(places, np.int32)), axis)
    return x


def _padded_places(mode: str, size: int, low: int, high: int) -> list[int]:
    wanted = range(-low, size + high)
    if mode == "edge":
        return [min(max(i, 0), size - 1) for i in wanted]
    if mode == "wrap":
        return [i % size for i in wanted]
    if mode == "reflect":
        period = max(2 * size - 2, 1)
        return [min(i % period, period - i % period) if size > 1 else 0 for i in wanted]
    raise NotExpressible(f"Pad: mode {mode}")


@adapts("CenterCropPad")
def _center_crop_pad(node: Node) -> Tensor:
    ops, x, sizes = node.ops, node.tensor(0), node.ints(1)
    axes = [axis_of(axis, x.ndim) for axis in node.attribute("axes", range(x.ndim))]
    start, stop, low, high = [0] * x.ndim, list(x.shape), [0] * x.ndim, [0] * x.ndim
    for axis, size in zip(axes, sizes, strict=True):
        more = size - x.shape[axis]
        low[axis], high[axis] = max(more, 0) // 2, max(more, 0) - max(more, 0) // 2
        start[axis] = max(-more, 0) // 2
        stop[axis] = start[axis] + min(size, x.shape[axis])
    return ops.pad(ops.slice(x, start, stop), low, high)


@adapts("DepthToSpace", "SpaceToDepth")
def _depth_and_space(node: Node) -> Tensor:
    ops, x, size = node.ops, node.tensor(0), node.attribute("blocksize")
    batch, depth, height, width = x.shape
    if node.kind == "SpaceToDepth":
        parts = ops.reshape(x, (batch, depth, height // size, size, width // size, size))
        crd = node.attribute("mode", "DCR") == "CRD"
        parts = ops.transpose(parts, (0, 1, 3, 5, 2, 4) if crd else (0, 3, 5, 1, 2, 4))
        return ops.reshape(parts, (batch, depth * size * size, height // size, width // size))
    rest = depth // (size * size)
    if node.attribute("mode", "DCR") == "DCR":
        parts = ops.transpose(ops.reshape(x, (batch, size, size, rest, height, width)), (0, 3, 4, 1, 5, 2))
    else:
        parts = ops.transpose(ops.reshape(x, (batch, rest, size, size, height, width)), (0, 1, 4, 2, 5, 3))
    return ops.reshape(parts, (batch, rest, height * size, width * size))


@adapts("ConstantOfShape")
def _constant_of_shape(node: Node) -> Tensor:
    value = node.tensor_attribute("value") if node.attribute("value") is not None else np.zeros(1, np.float32)
    return node.ops.full(node.ints(0), value.reshape(-1)[0].item(), dtype_of(value))


def _above_diagonal(node: Node, shape: Sequence[int]) -> Tensor:
    """Column minus row of every element of the last two axes."""
    ops = node.ops
    return ops.sub(ops.iota(tuple(shape[-2:]), 1), ops.iota(tuple(shape[-2:]), 0))


@adapts("EyeLike")
def _eye_like(node: Node) -> Tensor:
    wanted = node.attribute("dtype")
    dtype = node.dtype(0) if wanted is None else dtype_numbered(wanted)
    where = node.ops.equal(_above_diagonal(node, node.shape(0)), node.attribute("k", 0))
    return node.ops.cast(where, dtype)


@adapts("Trilu")
def _trilu(node: Node) -> Tensor:
    ops, x = node.ops, node.tensor(0)
    offset = ops.cast(ops.reshape(node.tensor(1), ()), i64) if node.has(1) else ops.constant(0, i64)
    above = ops.cast(_above_diagonal(node, x.shape), i64)
    kept = (ops.greater_equal if node.attribute("upper", 1) else ops.less_equal)(above, offset)
    return ops.select(kept, x, ops.zeros((), x.dtype))


@adapts("Range")
def _range(node: Node) -> Tensor:
    """Returns the number of results, which must be known at compile time."""
    ops = node.ops
    start, limit, delta = (node.known(i).reshape(()) for i in range(3))
    count = max(int(np.ceil((limit - start) / delta)), 0)
    dtype = dtype_of(start)
    positions = ops.mul(ops.iota((count,), 0, dtype), ops.constant(delta.astype(start.dtype)))
    return ops.add(positions, ops.constant(start))


@adapts("OneHot")
def _one_hot(node: Node) -> Tensor:
    """``values`` is (off, on). Negative indices count from the end; others outside give no 1."""
    ops, indices, values = node.ops, node.tensor(0), node.tensor(2)
    (depth,) = node.ints(1)
    axis = axis_of(node.attribute("axis", -1), indices.ndim + 1)
    shape = [*indices.shape[:axis], 1, *indices.shape[axis:]]
    places = ops.reshape(indices, shape)
    places = ops.select(ops.less(places, 0), ops.add(places, depth), places)
    full = [*indices.shape[:axis], depth, *indices.shape[axis:]]
    hit = ops.equal(ops.cast(ops.iota(full, axis), places.dtype), places)
    off, on = (ops.reshape(part, ()) for part in ops.split(values, (1, 1), 0))
    return ops.select(hit, on, off)


@adapts("BitCast")
def _bit_cast(node: Node) -> Tensor:
    wanted = dtype_numbered(node.attribute("to"))
    if as_dtype(node.dtype(0)) is wanted and wanted is not bool_:
        return node.tensor(0)
    raise NotExpressible("bits read as another dtype: the op table has no such cast")
