"""Texts of different lengths in one row of tokens, which see the tokens of their own text only."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from lang_core import ExecutionContext, Tensor
from transformer_core._names import PACKED, TEXT_ALIGNMENT
from transformer_core.layers._masks import mask_bias
from transformer_core.layers._rope_config import RopeConfig

PACKED_INPUTS: Final = ("text_ids", "positions", "key_places")
"""Arguments of these entry points in the place of ``attention_mask``."""
_SIZES: Final = (128, 512)
_FEWEST: Final = 32  # shorter texts fill no row better than a call of ``forward``


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedTexts:
    """Row of T tokens of up to R texts, one after the other.

    Keys have places of their own, so that those of a text begin at a multiple of 16: S = 16 R.

    Attributes:
        token_ids: i32 [1, T].
        text_ids: i32 [1, T], number of the token's text, from 0 to R - 1; -1 for padding.
        positions: i32 [1, T], place of the token in its text; 0 for padding.
        key_places: i32 [1, S], the token that has its key in this place; -1 for none. Place 0 has one.
        token_type_ids: i32 [1, T]; None if the model has fewer than two types.
        pooled: i32 [1, T], 0 where padding or the prompt; None if the prompt is pooled, too.
    """

    token_ids: Tensor
    text_ids: Tensor
    positions: Tensor
    key_places: Tensor
    token_type_ids: Tensor | None = None
    pooled: Tensor | None = None

    def states(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Returns the states [1, S, D] of the tokens in the places of their keys, of x [1, T, D].

        Sums over a text then have the same bits wherever its tokens are in the row.
        """
        return ctx.ops.take(x, self.places(ctx), 1)

    def mask(self, ctx: ExecutionContext) -> Tensor:
        """Returns i32 [R, S], 1 where a place is one of the row's text."""
        ops, keys = ctx.ops, self.key_places.shape[1]
        rows = ops.iota((keys // TEXT_ALIGNMENT, 1), 0)
        is_of_row = ops.equal(ops.take(self.text_ids, self.places(ctx), 1), rows)
        return ops.cast(ops.logical_and(is_of_row, ops.greater_equal(self.key_places, 0)), "i32")

    def pooling_mask(self, ctx: ExecutionContext) -> Tensor | None:
        """Returns i32 [R, S], 1 where a token of the row's text is pooled; None if all of them are."""
        if self.pooled is None:
            return None
        return ctx.ops.mul(self.mask(ctx), ctx.ops.take(self.pooled, self.places(ctx), 1))

    def state_positions(self, ctx: ExecutionContext) -> Tensor:
        """Returns the positions i32 [1, S] of ``states``."""
        return ctx.ops.take(self.positions, self.places(ctx), 1)

    def token_positions(self, ctx: ExecutionContext) -> Tensor:
        """Returns ``positions`` as i32 [T]."""
        return ctx.ops.reshape(self.positions, self.positions.shape[1:])

    def places(self, ctx: ExecutionContext) -> Tensor:
        """Returns the tokens of the keys, i32 [S]; the first token in the place of none."""
        return ctx.ops.maximum(ctx.ops.reshape(self.key_places, self.key_places.shape[1:]), 0)

    def distances(self, ctx: ExecutionContext) -> Tensor:
        """Returns i32 [T, S], the position of each key less that of the query."""
        ops, positions = ctx.ops, self.token_positions(ctx)
        keys = ops.take(positions, self.places(ctx))
        return ops.sub(ops.reshape(keys, (1, -1)), ops.reshape(positions, (-1, 1)))

    def seen(self, ctx: ExecutionContext) -> Tensor:
        """Returns bool [T, S], true where a token and a key are of one text; padding sees the first key."""
        ops, tokens = ctx.ops, self.text_ids.shape[1]
        texts = ops.maximum(ops.reshape(self.text_ids, (tokens, 1)), 0)
        keys = ops.take(ops.reshape(self.text_ids, (tokens,)), self.places(ctx))
        filled = ops.greater_equal(self.key_places, 0)
        return ops.logical_and(ops.equal(texts, ops.reshape(keys, (1, -1))), filled)

    def bias(self, ctx: ExecutionContext) -> Tensor:
        """Returns the bias f32 [1, 1, 1, T, S] that hides tokens of other texts."""
        tokens, keys = self.text_ids.shape[1], self.key_places.shape[1]
        return mask_bias(ctx, ctx.ops.reshape(self.seen(ctx), (1, 1, 1, tokens, keys)))


def packed_keys(tokens: int) -> int:
    """Returns S, the places of keys of a row of so many tokens: half as many again, for texts of 5 tokens or more."""
    return -(-tokens * 3 // (2 * TEXT_ALIGNMENT)) * TEXT_ALIGNMENT


def packed_name(tokens: int) -> str:
    """Returns the name of the entry point of rows of so many tokens."""
    return f"{PACKED}_{tokens}"


def is_packed(name: str) -> bool:
    """Returns whether an entry point takes packed texts."""
    return name.partition("_")[0] == PACKED


def packed_sizes(longest: int, ropes: Iterable[RopeConfig]) -> tuple[int, ...]:
    """Returns the numbers of tokens of rows of packed texts, ascending, of a model that reads up to ``longest``.

    There are none if a RoPE changes with the length of the text within these.
    """
    thresholds = [rope.scaling.threshold for rope in ropes]
    if longest < _FEWEST or any(threshold is not None and threshold < _SIZES[-1] for threshold in thresholds):
        return ()
    return _SIZES
