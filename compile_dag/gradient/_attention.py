"""Gradients of attention: scores and weights [.., T, S] are computed again, not kept (arXiv:2205.14135, Appendix B)."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from compile_dag.gradient._rules import ForwardCall, Thunk, composite_gradient
from lang_core import Tensor


class _Scores:
    """Scores of query heads in groups, [B, K, G, T, S], and the way back from their gradient to q and k."""

    def __init__(self, forward: ForwardCall, q: Tensor, k: Tensor, scale: float | None) -> None:
        self.ops, self.dtype = forward.ops, q.dtype.accumulation
        self._q, self._k = q, k
        self._scale = max(q.shape[-1], 1) ** -0.5 if scale is None else scale
        product = self.ops.dot_general(q, k, ((4,), (3,)), ((0, 1), (0, 1)), dtype=self.dtype)
        self.scaled = self.ops.mul(product, self._scale)

    def through_softmax(self, weights: Tensor, g: Tensor, v: Tensor) -> Tensor:
        """Returns the gradient of the softmax's operand, from that of the result [B, K, G, T, H']."""
        ops = self.ops
        of_weights = ops.dot_general(g, ops.cast(v, self.dtype), ((4,), (3,)), ((0, 1), (0, 1)))
        product = ops.mul(of_weights, weights)
        return ops.sub(product, ops.mul(weights, ops.sum(product, -1, keepdims=True)))

    def of_q(self, of_scaled: Tensor) -> Tensor:
        """Returns the gradient of q: [B, K, G, T, H]."""
        product = self.ops.dot_general(of_scaled, self.ops.cast(self._k, self.dtype), ((4,), (2,)), ((0, 1), (0, 1)))
        return self.ops.mul(product, self._scale)

    def of_k(self, of_scaled: Tensor) -> Tensor:
        """Returns the gradient of k: [B, K, S, H]."""
        product = self.ops.dot_general(
            of_scaled, self.ops.cast(self._q, self.dtype), ((2, 3), (2, 3)), ((0, 1), (0, 1))
        )
        return self.ops.mul(product, self._scale)

    def of_v(self, weights: Tensor, g: Tensor) -> Tensor:
        """Returns the gradient of v: [B, K, S, H']."""
        return self.ops.dot_general(weights, g, ((2, 3), (2, 3)), ((0, 1), (0, 1)))


def _once(make: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Returns a function that computes the tensor on its first call and keeps it."""
    made: list[Tensor] = []

    def give() -> Tensor:
        if not made:
            made.append(make())
        return made[0]

    return give


@composite_gradient("attention")
def _attention(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    """Differentiates ``ops.attention``: scores may be capped by ``c tanh(score / c)``, a bias may be learned."""
    ops = forward.ops
    q, k, v, mask, bias = forward.inputs
    scale, softcap = forward.attributes
    batch, heads, queries, size = q.shape
    shared, group = k.shape[1], heads // k.shape[1]
    scores = _Scores(forward, ops.reshape(q, (batch, shared, group, queries, size)), k, scale)
    bent = None if softcap is None else ops.tanh(ops.div(scores.scaled, softcap))
    shifted = scores.scaled if bent is None else ops.mul(bent, softcap)
    where = _per_group(forward, mask, shared, group)
    if bias is not None:
        added = ops.cast(_per_group(forward, bias, shared, group), scores.dtype)
        seen = ops.not_equal(added, -math.inf)
        shifted, where = ops.add(shifted, added), seen if where is None else ops.logical_and(where, seen)
    weights = ops.softmax(shifted, -1, where=where)
    wide = ops.cast(ops.reshape(g, (batch, shared, group, queries, v.shape[-1])), scores.dtype)
    of_shifted = _once(lambda: scores.through_softmax(weights, wide, v))

    def of_scaled() -> Tensor:
        return of_shifted() if bent is None else ops.mul(of_shifted(), ops.mul(ops.add(bent, 1.0), ops.sub(1.0, bent)))

    through = _once(of_scaled)
    return (
        lambda: ops.reshape(scores.of_q(through()), q.shape),
        lambda: scores.of_k(through()),
        lambda: scores.of_v(weights, wide),
        None,
        lambda: ops.reshape(of_shifted(), (batch, heads, queries, k.shape[2])),
    )


def _per_group(forward: ForwardCall, x: Tensor | None, shared: int, group: int) -> Any:
    """Returns a mask or bias in a shape that broadcasts to [B, K, G, T, S]."""
    if x is None or x.ndim == 2:
        return x
    heads = (1, 1) if x.shape[1] == 1 else (shared, group)
    return forward.ops.reshape(x, (x.shape[0], *heads, *x.shape[2:]))


@composite_gradient("grouped_attention")
def _grouped_attention(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    """Differentiates ``softmax(scale q k^T + bias) v`` with q [B, K, G, T, H]; the bias may be learned."""
    ops = forward.ops
    q, k, v, bias = forward.inputs
    scores = _Scores(forward, q, k, forward.attributes[0])
    weights = ops.softmax(scores.scaled if bias is None else ops.add(scores.scaled, bias), -1)
    wide = ops.cast(g, scores.dtype)
    through = _once(lambda: scores.through_softmax(weights, wide, v))
    return (
        lambda: scores.of_q(through()),
        lambda: scores.of_k(through()),
        lambda: scores.of_v(weights, wide),
        through,
    )
