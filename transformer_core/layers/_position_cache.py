"""Positions that follow each token of a sequence, if these are not the tokens' numbers (M-RoPE, arXiv:2409.12191).

The tokens of an image share positions of rows and columns, so the position after a token is fewer than the number of
tokens. It is kept beside keys and values, so that it follows a row that is copied, cut or continued.
"""

from dataclasses import dataclass
from typing import Self

from lang_core import Axes, ExecutionContext, Tensor, TensorSpec
from transformer_core.layers._cache import CacheLayout
from transformer_core.layers._places import Places

_AXES: Axes = ("dp", None, None, None)


@dataclass(frozen=True, slots=True)
class PositionCache:
    """The position behind each token, at the token's place.

    Attributes:
        following: f32 [B, 1, S, 1].
    """

    following: Tensor

    @property
    def tensors(self) -> tuple[Tensor]:
        """``following``."""
        return (self.following,)

    def begin(self, ctx: ExecutionContext, position: Tensor, places: Places, batch: int) -> Tensor:
        """Returns the position of the next token, f32 [B, 1]; 0 of an empty sequence.

        Args:
            ctx: context that computes.
            position: i32 of rank 0 or [B], number of the next token.
            places: places of entries in the cache.
            batch: B.
        """
        ops, entries = ctx.ops, places.seen(ctx, self.following)
        entries = ops.reshape(entries, (batch, entries.shape[2]))
        before = ops.sub(ops.reshape(position, (-1, 1)), 1)
        is_last = ops.equal(ops.iota((1, entries.shape[1]), 1), before)
        return ops.sum(ops.select(is_last, entries, ops.constant(0.0, "f32")), 1, keepdims=True)

    def updated(self, ctx: ExecutionContext, following: Tensor, places: Places) -> Self:
        """Returns the cache with the entries ``following`` f32 [B, T] of new tokens."""
        new = ctx.ops.reshape(following, (following.shape[0], 1, following.shape[1], 1))
        return type(self)(places.written(ctx, self.following, new))


def position_layout(batch: int, capacity: int) -> CacheLayout:
    """Returns the layout of a cache of positions."""
    spec = TensorSpec((batch, 1, capacity, 1), "f32")
    return CacheLayout(PositionCache, {"following_cache": spec}, axes={"following_cache": _AXES})
