"""Gradients of sums of products."""

from collections.abc import Sequence

from compile_dag.gradient._rules import ForwardCall, Thunk, gradient_of, not_differentiable
from lang_core import GraphError, Ops, Tensor

Axes = tuple[int, ...]


not_differentiable(
    "attention over a cache has no gradient, because training uses none: without a cache the composite has one",
    "cached_attention",
    "packed_cached_attention",
    refused=True,
)
not_differentiable(
    "products with packed weights round activations to integers: train the model unpacked",
    "block_quantize",
    "block_product",
    "expert_block_product",
    refused=True,
)
not_differentiable("packed blocks are integers: train the model without quantized caches", "quantize", refused=True)
not_differentiable("block-quantised weights are integers", "dequantize")


@gradient_of("packed_linear")
def _packed_linear(forward: ForwardCall, g: Tensor) -> Sequence[Thunk | None]:
    """Multiplies the cotangent with the unpacked weight; the weight is integers."""
    encoding, dtype, _ = forward.attributes
    x, weight = forward.inputs
    _require_exact(forward)

    def of_x() -> Tensor:
        unpacked = forward.ops.dequantize(weight, encoding, dtype)
        return forward.ops.cast(forward.ops.dot_general(g, unpacked, ((g.ndim - 1,), (0,))), x.dtype)

    return of_x, None


@gradient_of("packed_expert_linear")
def _packed_expert_linear(forward: ForwardCall, g: Tensor) -> Sequence[Thunk | None]:
    """Multiplies each group's cotangent with its expert's unpacked weight, and sums over the groups that share x."""
    encoding, dtype, _ = forward.attributes
    x, expert, weight = forward.inputs
    _require_exact(forward)

    def of_x() -> Tensor:
        ops = forward.ops
        unpacked = ops.dequantize(ops.take(weight, expert), encoding, dtype)
        groups = ops.dot_general(g, unpacked, ((2,), (1,)), ((0,), (0,)))
        return ops.cast(ops.sum(ops.reshape(groups, (x.shape[0], -1, *x.shape[1:])), 1), x.dtype)

    return of_x, None, None


def _require_exact(forward: ForwardCall) -> None:
    """Refuses activations that are rounded to integers."""
    if forward.attributes[-1] != "exact":
        raise GraphError(
            f"no gradient goes through the op {forward.name!r} ({forward.where}): with activations="
            f"{forward.attributes[-1]} x is rounded to integers: take exact activations, or train the model unpacked"
        )


@gradient_of("dot_general")
def _dot_general(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    """Contracts the cotangent with the other operand over that one's free axes, for each operand."""
    x_contract, y_contract, x_batch, y_batch, _ = forward.attributes
    x, y = forward.inputs
    lead = len(x_batch)
    x_free = _free(x.ndim, x_contract + x_batch)
    y_free = _free(y.ndim, y_contract + y_batch)
    of_x_free = tuple(range(lead, lead + len(x_free)))
    of_y_free = tuple(range(lead + len(x_free), g.ndim))

    def of_x() -> Tensor:
        product = _product(forward.ops, g, y, (of_y_free, y_free), (tuple(range(lead)), y_batch), x)
        return _arranged(forward.ops, product, x_batch + x_free + _paired(y_contract, x_contract))

    def of_y() -> Tensor:
        product = _product(forward.ops, g, x, (of_x_free, x_free), (tuple(range(lead)), x_batch), y)
        return _arranged(forward.ops, product, y_batch + y_free + _paired(x_contract, y_contract))

    return of_x, of_y


def _free(ndim: int, used: Axes) -> Axes:
    return tuple(axis for axis in range(ndim) if axis not in used)


def _paired(mine: Axes, others: Axes) -> Axes:
    """Returns the axes ``others``, in the order of the axes that they are paired with."""
    return tuple(other for _, other in sorted(zip(mine, others, strict=True)))


def _product(ops: Ops, g: Tensor, other: Tensor, contract: tuple[Axes, Axes], batch: tuple[Axes, Axes], of: Tensor):
    """Contracts the cotangent with the other operand, in the dtype of the differentiated operand if possible."""
    if g.dtype is other.dtype:
        return ops.dot_general(g, other, contract, batch)
    product = ops.dot_general(g, ops.cast(other, g.dtype), contract, batch, dtype=g.dtype.accumulation)
    return ops.cast(product, of.dtype)


def _arranged(ops: Ops, product: Tensor, axes: Axes) -> Tensor:
    """Transposes a product to the operand's order; axis i of the product is axis ``axes[i]`` of the operand."""
    order = tuple(axes.index(axis) for axis in range(len(axes)))
    return product if order == tuple(range(len(axes))) else ops.transpose(product, order)


@gradient_of("conv")
def _conv(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    return lambda: _of_conv_input(forward, g), lambda: _of_conv_kernel(forward, g)


def _of_conv_input(forward: ForwardCall, g: Tensor) -> Tensor:
    """Convolves the cotangent, spread out by the strides, with the reversed kernel."""
    ops = forward.ops
    x, kernel = forward.inputs
    strides, padding, dilation, groups = forward.attributes
    if not g.spec.size or not x.spec.size or not kernel.spec.size:
        return forward.zeros_like(x)
    taps, (inputs, outputs) = kernel.shape[:-2], kernel.shape[-2:]
    spatial = tuple(range(len(taps)))
    split = ops.reshape(ops.reverse(kernel, spatial), (*taps, inputs, groups, outputs // groups))
    swapped = ops.transpose(split, (*spatial, len(taps) + 2, len(taps) + 1, len(taps)))
    turned = ops.reshape(swapped, (*taps, outputs // groups, groups * inputs))
    low, high = [], []
    for size, n, s, (before, _), d, k in zip(
        x.shape[1:-1], g.shape[1:-1], strides, padding, dilation, taps, strict=True
    ):
        reach = d * (k - 1)
        low.append(reach - before)
        high.append(size + before - ((n - 1) * s + 1))
    spread = _padded(ops, g, (0, *low, 0), (0, *high, 0), (0, *[s - 1 for s in strides], 0))
    return ops.conv(spread, turned, dilation=dilation, groups=groups)


def _padded(ops: Ops, x: Tensor, low: Axes, high: Axes, interior: Axes) -> Tensor:
    """Pads x with zeros; a negative number takes elements away."""
    padded = ops.pad(x, [max(a, 0) for a in low], [max(b, 0) for b in high], interior=interior)
    start = [max(-a, 0) for a in low]
    stop = [dim - max(-b, 0) for dim, b in zip(padded.shape, high, strict=True)]
    return padded if not any(start) and stop == list(padded.shape) else ops.slice(padded, start, stop)


def _of_conv_kernel(forward: ForwardCall, g: Tensor) -> Tensor:
    """Convolves the input with the cotangent: the batch is summed over, strides and dilation change places."""
    ops = forward.ops
    x, kernel = forward.inputs
    strides, padding, dilation, groups = forward.attributes
    if not g.spec.size or not x.spec.size or not kernel.spec.size:
        return forward.zeros_like(kernel)
    batch, *sizes, channels = x.shape
    count = len(sizes)
    inputs = channels // groups
    split = ops.reshape(x, (batch, *sizes, groups, inputs))
    order = (count + 2, *range(1, count + 1), count + 1, 0)
    left = ops.reshape(ops.transpose(split, order), (inputs, *sizes, groups * batch))
    right = ops.transpose(g, (*range(1, count + 1), 0, count + 1))
    result = ops.conv(left, right, strides=dilation, padding=padding, dilation=strides, groups=groups)
    taps = kernel.shape[:-2]
    cut = ops.slice(result, [0] * result.ndim, (inputs, *taps, kernel.shape[-1]))  # a rest of the strides beyond
    return ops.transpose(cut, (*range(1, count + 1), 0, count + 1))
