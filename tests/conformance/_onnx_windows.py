"""Adapters of ONNX's convolutions and pools. ONNX has x as [B, C, spatial..], the op table as [B, spatial.., C]."""

import itertools
import math
from collections.abc import Iterator, Sequence

from lang_core import Tensor
from tests.conformance._onnx_elementwise import floating_operand
from tests.conformance._onnx_node import Node, NotExpressible, adapts

Pads = list[tuple[int, int]]


def _window(node: Node, spatial: Sequence[int], kernel: Sequence[int]) -> tuple[list[int], list[int], Pads]:
    """Strides, dilations and padding."""
    count = len(spatial)
    strides = list(node.attribute("strides") or [1] * count)
    dilations = list(node.attribute("dilations") or [1] * count)
    auto = node.attribute("auto_pad", "NOTSET")
    given = list(node.attribute("pads") or [0] * (2 * count))
    pads = list(zip(given[:count], given[count:], strict=True))
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        pads = []
        for size, taps, stride, dilation in zip(spatial, kernel, strides, dilations, strict=True):
            total = max((-(-size // stride) - 1) * stride + dilation * (taps - 1) + 1 - size, 0)
            small, large = total // 2, total - total // 2
            pads.append((small, large) if auto == "SAME_UPPER" else (large, small))
    elif auto == "VALID":
        pads = [(0, 0)] * count
    return strides, dilations, pads


@adapts("Conv")
def _conv(node: Node) -> Tensor:
    ops, x, kernel = node.ops, node.tensor(0), node.tensor(1)
    strides, dilations, pads = _window(node, x.shape[2:], kernel.shape[2:])
    spatial = range(2, x.ndim)
    result = ops.conv(
        ops.transpose(x, (0, *spatial, 1)),
        ops.transpose(kernel, (*spatial, 1, 0)),
        strides,
        pads,
        dilations,
        node.attribute("group", 1),
    )
    if node.has(2):
        result = ops.add(result, node.tensor(2))
    return ops.transpose(result, (0, x.ndim - 1, *range(1, x.ndim - 1)))


def _taps(kernel: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return itertools.product(*map(range, kernel))


def _tap(
    node: Node, x: Tensor, at: Sequence[int], out: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> Tensor:
    """Returns what one position of the window sees, for every position of the result: [B, C, out..]."""
    first = [i * d for i, d in zip(at, dilations, strict=True)]
    last = [a + (n - 1) * s + 1 for a, n, s in zip(first, out, strides, strict=True)]
    return node.ops.slice(x, [0, 0, *first], [*x.shape[:2], *last], [1, 1, *strides])


def _out_sizes(
    node: Node,
    spatial: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Pads,
) -> list[int]:
    out = []
    for size, taps, stride, dilation, (low, high) in zip(spatial, kernel, strides, dilations, pads, strict=True):
        room = size + low + high - dilation * (taps - 1) - 1
        count = (-(-room // stride) if node.attribute("ceil_mode", 0) else room // stride) + 1
        # The last window must begin inside x or the padding before it.
        out.append(count - 1 if node.attribute("ceil_mode", 0) and (count - 1) * stride >= size + low else count)
    return out


@adapts("MaxPool", "AveragePool", "LpPool")
def _pool(node: Node) -> Tensor:
    """One slice per position of the window."""
    ops, x = node.ops, node.tensor(0)
    if node.wants(1):
        raise NotExpressible("MaxPool with indices: not adapted")
    kernel = node.attribute("kernel_shape")
    strides, dilations, pads = _window(node, x.shape[2:], kernel)
    out = _out_sizes(node, x.shape[2:], kernel, strides, dilations, pads)
    reach = [(n - 1) * s + d * (k - 1) + 1 for n, s, d, k in zip(out, strides, dilations, kernel, strict=True)]
    low = [0, 0, *(a for a, _ in pads)]
    high = [0, 0, *(max(r - size - a, 0) for r, size, (a, _) in zip(reach, x.shape[2:], pads, strict=True))]
    if node.kind == "MaxPool":
        floor = -math.inf if x.dtype.is_floating else 0 if x.dtype.name == "u8" else -(2 ** (8 * x.dtype.itemsize - 1))
        padded = ops.pad(x, low, high, floor)
        parts = [_tap(node, padded, at, out, strides, dilations) for at in _taps(kernel)]
        result = parts[0]
        for part in parts[1:]:
            result = ops.maximum(result, part)
        return result
    values, dtype = floating_operand(node)
    power = node.attribute("p", 2) if node.kind == "LpPool" else 1
    if node.kind == "LpPool":
        values = ops.pow(ops.abs(values), float(power))
    padded = ops.pad(values, low, high)
    total = _total(node, [_tap(node, padded, at, out, strides, dilations) for at in _taps(kernel)])
    if node.kind == "LpPool":
        return ops.cast(ops.pow(total, 1 / power), dtype)
    counted = ops.ones((1, 1, *x.shape[2:]), values.dtype)
    if node.attribute("count_include_pad", 0):  # what lies beyond the padding does not count
        counted = ops.pad(counted, low, [0, 0, *(min(h, b) for h, (_, b) in zip(high[2:], pads, strict=True))], 1)
        rest = [r - size for r, size in zip(reach, counted.shape[2:], strict=True)]
        counted = ops.pad(counted, [0] * x.ndim, [0, 0, *(max(r, 0) for r in rest)])
    else:
        counted = ops.pad(counted, low, high)
    count = _total(node, [_tap(node, counted, at, out, strides, dilations) for at in _taps(kernel)])
    return ops.cast(ops.div(total, count), dtype)


def _total(node: Node, parts: list[Tensor]) -> Tensor:
    result = parts[0]
    for part in parts[1:]:
        result = node.ops.add(result, part)
    return result


@adapts("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _global_pool(node: Node) -> Tensor:
    ops, x = node.ops, node.tensor(0)
    axes = tuple(range(2, x.ndim))
    if node.kind == "GlobalLpPool":
        raise NotExpressible("GlobalLpPool: not adapted")
    return ops.mean(x, axes, True) if node.kind == "GlobalAveragePool" else ops.max(x, axes, True)


@adapts("ConvTranspose")
def _conv_transpose(node: Node) -> Tensor:
    """A convolution of x, spread out by the strides, with the kernel turned round (Dumoulin, Visin 2016)."""
    ops, x, kernel, groups = node.ops, node.tensor(0), node.tensor(1), node.attribute("group", 1)
    count = x.ndim - 2
    strides = list(node.attribute("strides") or [1] * count)
    dilations = list(node.attribute("dilations") or [1] * count)
    low, high = _transpose_padding(node, x.shape[2:], kernel.shape[2:], strides, dilations)
    spatial = range(2, x.ndim)
    inputs, outputs = kernel.shape[:2]  # [C, O / groups, k..]
    kernel = ops.reshape(kernel, (groups, inputs // groups, outputs, *kernel.shape[2:]))
    axes = range(3, kernel.ndim)
    kernel = ops.reverse(ops.transpose(kernel, (*axes, 1, 0, 2)), tuple(range(count)))  # [k.., C / groups, groups, O']
    kernel = ops.reshape(kernel, (*kernel.shape[:count], inputs // groups, groups * outputs))
    spread = ops.pad(
        ops.transpose(x, (0, *spatial, 1)),
        [0, *(max(a, 0) for a in low), 0],
        [0, *(max(a, 0) for a in high), 0],
        0,
        [0, *(s - 1 for s in strides), 0],
    )
    start = [0, *(max(-a, 0) for a in low), 0]
    stop = [d - max(-h, 0) for d, h in zip(spread.shape, [0, *high, 0], strict=True)]
    result = ops.conv(ops.slice(spread, start, stop), kernel, None, None, dilations, groups)
    if node.has(2):
        result = ops.add(result, node.tensor(2))
    return ops.transpose(result, (0, x.ndim - 1, *range(1, x.ndim - 1)))


def _transpose_padding(
    node: Node, spatial: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Zeros before and after each axis of the spread x; below zero, elements to leave out."""
    count = len(spatial)
    more = list(node.attribute("output_padding") or [0] * count)
    given = list(node.attribute("pads") or [0] * (2 * count))
    begin, end = given[:count], given[count:]
    wanted, auto = node.attribute("output_shape"), node.attribute("auto_pad", "NOTSET")
    full = [
        s * (n - 1) + m + d * (k - 1) + 1
        for s, n, m, d, k in zip(strides, spatial, more, dilations, kernel, strict=True)
    ]
    if wanted is None and auto in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [n * s for n, s in zip(spatial, strides, strict=True)]
    if wanted is not None:
        total = [a - b for a, b in zip(full, list(wanted)[-count:], strict=True)]
        small, large = [t // 2 for t in total], [t - t // 2 for t in total]
        begin, end = (large, small) if auto != "SAME_UPPER" else (small, large)
    edges = [d * (k - 1) for d, k in zip(dilations, kernel, strict=True)]
    low = [e - b for e, b in zip(edges, begin, strict=True)]
    return low, [e - a + m for e, a, m in zip(edges, end, more, strict=True)]


@adapts("ConvInteger")
def _conv_integer(node: Node) -> Tensor:
    raise NotExpressible("convolutions of integers: the op table has floating ones only")
