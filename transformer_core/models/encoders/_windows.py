"""Windows of attention, and tokens that attend to all others (Longformer, arXiv:2004.05150)."""

from dataclasses import dataclass
from typing import Literal

from lang_core import DType, ExecutionContext, Tensor, checked_choices
from transformer_core._config_fields import ConfigFields
from transformer_core.layers._attention import fused_attention
from transformer_core.layers._linear import Linear
from transformer_core.layers._masks import mask_bias, near_mask, token_distances
from transformer_core.layers._multi_head_attention import MultiHeadAttention, RopeTables

GlobalTokens = Literal["none", "first", "question"]
"""Tokens that attend to all others and are seen by all: none, the first, or those before the first separator."""


@checked_choices
@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of the layers.

    Attributes:
        distances: for each layer, the greatest distance of a token that is seen, on either side.
        everywhere: tokens that attend to all others.
        separator: token id that ends a question.
    """

    distances: tuple[int, ...]
    everywhere: GlobalTokens = "none"
    separator: int = 2

    def global_tokens(self, ctx: ExecutionContext, token_ids: Tensor) -> Tensor | None:
        """Returns bool [B, T], true for tokens that attend to all others; None if there are none."""
        ops, tokens = ctx.ops, token_ids.shape[1]
        if self.everywhere == "none":
            return None
        if self.everywhere == "first":
            return ops.equal(ops.mul(token_ids, 0), ops.iota((1, tokens), 1))
        return ops.equal(ops.cumsum(ops.cast(ops.equal(token_ids, self.separator), "i32"), 1), 0)

    def biases(self, ctx: ExecutionContext, attention_mask: Tensor, everywhere: Tensor | None) -> list[Tensor]:
        """Returns the bias of each layer, broadcast to [B, 1, 1, T, T], of a mask i32 [B, T]."""
        ops, (batch, tokens) = ctx.ops, attention_mask.shape
        real = ops.reshape(ops.not_equal(attention_mask, 0), (batch, 1, 1, 1, tokens))
        distances, made = token_distances(ctx, tokens), dict[int, Tensor]()
        for distance in dict.fromkeys(self.distances):
            near = ops.reshape(near_mask(ctx, distances, distance), (1, 1, 1, tokens, tokens))
            if everywhere is not None:
                near = ops.logical_or(near, ops.reshape(everywhere, (batch, 1, 1, 1, tokens)))
            made[distance] = mask_bias(ctx, ops.logical_and(near, real))
        return [made[distance] for distance in self.distances]


def window_distances(fields: ConfigFields, layers: int) -> tuple[int, ...]:
    """Reads ``attention_window``: for each layer, the greatest distance of a token that is seen, on either side."""
    value = fields.values.get("attention_window", 512)
    sizes = value if isinstance(value, list) else [value] * layers
    if len(sizes) != layers or not all(type(size) is int and size > 0 and size % 2 == 0 for size in sizes):
        fields.refuse("attention_window", f"an even number above 0, or one for each of {layers} layers")
    return tuple(size // 2 for size in sizes)


class GlobalAttention(MultiHeadAttention):
    """Attention in which some tokens attend to all others, with projections of their own.

    In place of RoPE's tables ``forward`` takes these tokens, bool [B, T], and the bias of padding.
    """

    def __init__(self, size: int, heads: int, *, dtype: DType | str = "f32") -> None:
        super().__init__(size, heads, dtype=dtype)
        self.global_q_proj = Linear(size, size, bias=True, dtype=dtype)
        self.global_k_proj = Linear(size, size, bias=True, dtype=dtype)
        self.global_v_proj = Linear(size, size, bias=True, dtype=dtype)

    def forward(
        self,
        ctx: ExecutionContext,
        x: Tensor,
        bias: Tensor | None = None,
        tables: RopeTables | None = None,
        key_places: Tensor | None = None,
    ) -> Tensor:
        """Self-attention of x [B, T, D]: [B, T, D]; ``tables`` as of the class, the others as of the base class."""
        assert tables is not None  # the model of such layers has some
        assert key_places is None  # texts are not packed
        everywhere, padding = tables
        near = self._attended(ctx, x, bias, self.q_proj, self.k_proj, self.v_proj)
        far = self._attended(ctx, x, padding, self.global_q_proj, self.global_k_proj, self.global_v_proj)
        chosen = ctx.ops.select(ctx.ops.reshape(everywhere, (*x.shape[:2], 1)), far, near)
        return self.o_proj(ctx, chosen)

    def _attended(
        self, ctx: ExecutionContext, x: Tensor, bias: Tensor | None, query: Linear, key: Linear, value: Linear
    ) -> Tensor:
        """Attends within x [B, T, D], before the output projection: [B, T, D]."""
        ops, (batch, tokens, size) = ctx.ops, x.shape
        q, k, v = (self._heads(ctx, one(ctx, x)) for one in (query, key, value))
        q = ops.reshape(q, (batch, self.heads, 1, tokens, self.head_size))
        heads = ops.reshape(
            fused_attention(ctx, q, k, v, bias, self.scale), (batch, self.heads, tokens, self.head_size)
        )
        return ops.reshape(ops.transpose(heads, (0, 2, 1, 3)), (batch, tokens, size))
