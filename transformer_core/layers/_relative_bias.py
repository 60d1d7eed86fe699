"""Biases of attention scores by the distance of query and key: learned ones (arXiv:1910.10683), and ALiBi."""

import math

import numpy as np

from lang_core import DType, ExecutionContext, Module, OpError, Parameter, Tensor, checked_choices, f32


@checked_choices
class RelativeBias(Module):
    """A learned bias per head for each bucket of distances (Raffel et al. 2020, arXiv:1910.10683, section 2.1).

    Buckets grow with the logarithm of the distance.

    Args:
        rows: rows of the table, at least as many as there are buckets.
        heads: N.
        buckets: number of buckets.
        longest: distance from which on all share the last bucket.
        causal: whether later keys are hidden from queries, and do not need their own buckets.
        dtype: dtype of the parameters.
    """

    def __init__(
        self,
        rows: int,
        heads: int,
        *,
        buckets: int,
        longest: int,
        causal: bool = False,
        dtype: DType | str = "f32",
    ) -> None:
        self.weight = Parameter((rows, heads), dtype)
        self.buckets, self.longest, self.causal = buckets, longest, causal

    def forward(self, ctx: ExecutionContext, queries: int, keys: int, position: Tensor | None = None) -> Tensor:
        """Returns the biases f32 [1, N, 1, T, S] of T queries, the first at ``position`` (0 if None), and S keys.

        Raises:
            OpError: there are more queries than keys.
        """
        if queries > keys:
            raise OpError(f"RelativeBias: expected at most as many queries as keys ({keys}); found {queries}")
        ops = ctx.ops
        distances = ops.sub(ops.iota((1, keys), 1), ops.iota((queries, 1), 0))
        if position is not None:
            distances = ops.sub(distances, position)
        return self.between(ctx, distances, keys)

    def between(self, ctx: ExecutionContext, distances: Tensor, tokens: int) -> Tensor:
        """Returns the biases f32 [1, N, 1, T, S] of distances i32 [T, S], of keys' places less queries'.

        Distances of ``tokens`` or more, on either side, count as the last one below.
        """
        ops = ctx.ops
        rows = distance_buckets(np.arange(1 - tokens, tokens), self.buckets, self.longest, causal=self.causal)
        biases = ops.take(ops.cast(ctx.parameter(self.weight), f32), ops.constant(rows))  # [2 S - 1, N]
        places = ops.clamp(ops.add(distances, tokens - 1), 0, 2 * tokens - 2)
        return ops.reshape(
            ops.transpose(ops.take(biases, places), (2, 0, 1)), (1, self.weight.spec.shape[1], 1, *distances.shape)
        )


def distance_buckets(distances: np.ndarray, buckets: int, longest: int, *, causal: bool = False) -> np.ndarray:
    """Returns the buckets i32 of distances, of the key's place less the query's.

    >>> distance_buckets(np.array([-9, -1, 0, 1, 9, 500]), 32, 128).tolist()
    [8, 1, 0, 17, 24, 31]
    """
    later = np.zeros_like(distances) if causal else np.where(distances > 0, buckets // 2, 0)
    count = buckets if causal else buckets // 2
    length = np.maximum(-distances, 0) if causal else np.abs(distances)
    exact = count // 2
    with np.errstate(divide="ignore"):
        ratio = np.log(length.astype(np.float32) / np.float32(exact)) / np.float32(math.log(longest / exact))
        grown = np.where(length < exact, 0, ratio * np.float32(count - exact)).astype(np.int64)
    return (later + np.where(length < exact, length, np.minimum(exact + grown, count - 1))).astype(np.int32)


def alibi_bias(ctx: ExecutionContext, heads: int, distances: Tensor) -> Tensor:
    """Returns biases f32 [1, N, 1, T, S] of distances i32 [T, S], less by a head's slope for each place between."""
    ops = ctx.ops
    slopes = ops.constant(-alibi_slopes(heads).reshape(1, heads, 1, 1, 1))
    return ops.mul(slopes, ops.reshape(ops.cast(ops.abs(distances), f32), (1, 1, 1, *distances.shape)))


def alibi_slopes(heads: int) -> np.ndarray:
    """Returns the slopes f32 [N] of heads (Press et al. 2022, arXiv:2108.12409, section 3).

    For a number of heads that is not a power of 2, those of the power below, then every other one of the power above.

    >>> alibi_slopes(4).tolist(), alibi_slopes(6)[4:].round(4).tolist()
    ([0.25, 0.0625, 0.015625, 0.00390625], [0.5, 0.125])
    """
    whole = 1 << (heads.bit_length() - 1)
    below = 2.0 ** (-8.0 / whole * np.arange(1, whole + 1))
    above = 2.0 ** (-4.0 / whole * np.arange(1, 2 * (heads - whole), 2))
    return np.concatenate([below, above]).astype(np.float32)
