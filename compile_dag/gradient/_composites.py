"""Gradients of composites, each as one: less is kept from the forward pass than their ops would keep.

Only a composite's inputs and results are kept; intermediate values are computed again.
"""

import math
from collections.abc import Sequence
from typing import Final

from compile_dag.gradient._rules import ForwardCall, Thunk, composite_gradient
from lang_core import Ops, Tensor

_ROOT: Final = math.sqrt(2 / math.pi)


@composite_gradient("softmax")
def _softmax(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    """y (g - sum(g y)), from the result alone; where it is masked y is 0."""
    ops = forward.ops
    (axis,) = forward.attributes

    def of_x() -> Tensor:
        wide, y = forward.wide(g, forward.results[0])
        product = ops.mul(wide, y)
        return ops.sub(product, ops.mul(y, ops.sum(product, axis, keepdims=True)))

    return of_x, None


@composite_gradient("log_softmax")
def _log_softmax(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    """g - softmax(x) sum(g), from the result alone."""
    ops = forward.ops
    (axis,) = forward.attributes

    def of_x() -> Tensor:
        wide, y = forward.wide(g, forward.results[0])
        return ops.sub(wide, ops.mul(ops.exp(y), ops.sum(wide, axis, keepdims=True)))

    return (of_x,)


@composite_gradient("relu")
def _relu(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    """g where x is above 0; 0 at 0, as in PyTorch and JAX, where a maximum gives half."""
    return (lambda: forward.ops.select(forward.ops.greater(forward.inputs[0], 0), g, 0.0),)


@composite_gradient("silu")
def _silu(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    """s (1 + x (1 - s)), s = logistic(x)."""
    ops = forward.ops

    def of_x() -> Tensor:
        wide, x = forward.wide(g, forward.inputs[0])
        slope = ops.mul(ops.logistic(x), ops.add(ops.mul(x, ops.logistic(ops.negate(x))), 1.0))
        return ops.mul(wide, slope)

    return (of_x,)


@composite_gradient("softplus")
def _softplus(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    def of_x() -> Tensor:
        wide, x = forward.wide(g, forward.inputs[0])
        return forward.ops.mul(wide, forward.ops.logistic(x))

    return (of_x,)


@composite_gradient("gelu")
def _gelu(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    """Phi(x) + x phi(x), Phi and phi the normal distribution and its density."""
    ops = forward.ops

    def of_x() -> Tensor:
        wide, x = forward.wide(g, forward.inputs[0])
        below = ops.mul(ops.add(ops.erf(ops.mul(x, math.sqrt(0.5))), 1.0), 0.5)
        density = ops.mul(ops.exp(ops.mul(ops.mul(x, x), -0.5)), 1 / math.sqrt(2 * math.pi))
        return ops.mul(wide, ops.add(below, ops.mul(x, density)))

    return (of_x,)


@composite_gradient("gelu_tanh")
def _gelu_tanh(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    """(1 + t) / 2 + x (1 - t^2) u' / 2, t = tanh(u), u = sqrt(2 / pi) (x + 0.044715 x^3)."""
    ops = forward.ops

    def of_x() -> Tensor:
        wide, x = forward.wide(g, forward.inputs[0])
        square = ops.mul(x, x)
        t = ops.tanh(ops.mul(ops.mul(x, ops.add(ops.mul(square, 0.044715), 1.0)), _ROOT))
        inner = ops.mul(ops.add(ops.mul(square, 3 * 0.044715), 1.0), _ROOT)
        rest = ops.mul(ops.mul(x, ops.mul(ops.add(t, 1.0), ops.sub(1.0, t))), inner)
        return ops.mul(wide, ops.mul(ops.add(ops.add(t, 1.0), rest), 0.5))

    return (of_x,)


@composite_gradient("rms_norm")
def _rms_norm(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    """dx = r (h - n mean(h n)), dweight = sum(g n), where n = x r, r = 1 / sqrt(mean(x^2) + eps), h = g weight."""
    ops = forward.ops
    (eps,) = forward.attributes
    wide, x = forward.wide(g, forward.inputs[0])
    scale = ops.rsqrt(ops.add(ops.mean(ops.mul(x, x), -1, keepdims=True), eps))
    normed = ops.mul(x, scale)

    def of_x() -> Tensor:
        return _through_norm(ops, _weighted(forward, wide, forward.inputs[1]), normed, scale)

    return of_x, lambda: ops.mul(wide, normed)


@composite_gradient("layer_norm")
def _layer_norm(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    """Differentiates rms_norm of x - mean(x): the gradient loses its mean too."""
    ops = forward.ops
    (eps,) = forward.attributes
    wide, x = forward.wide(g, forward.inputs[0])
    centred = ops.sub(x, ops.mean(x, -1, keepdims=True))
    scale = ops.rsqrt(ops.add(ops.mean(ops.mul(centred, centred), -1, keepdims=True), eps))
    normed = ops.mul(centred, scale)

    def of_x() -> Tensor:
        inner = _through_norm(ops, _weighted(forward, wide, forward.inputs[1]), normed, scale)
        return ops.sub(inner, ops.mean(inner, -1, keepdims=True))

    return of_x, lambda: ops.mul(wide, normed), lambda: wide


def _weighted(forward: ForwardCall, wide: Tensor, weight: Tensor | None) -> Tensor:
    return wide if weight is None else forward.ops.mul(wide, forward.ops.cast(weight, wide.dtype))


def _through_norm(ops: Ops, h: Tensor, normed: Tensor, scale: Tensor) -> Tensor:
    shared = ops.mean(ops.mul(h, normed), -1, keepdims=True)
    return ops.mul(scale, ops.sub(h, ops.mul(normed, shared)))
