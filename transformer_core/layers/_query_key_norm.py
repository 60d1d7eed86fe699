"""Norms of queries and keys."""

from lang_core import DType, ExecutionContext, Module, Parameter, Tensor, as_dtype
from transformer_core.layers._attention_config import QueryKeyNorm, QueryKeyNormKind
from transformer_core.layers._norm import LayerNorm, RMSNorm


class LayerNormPerHead(Module):
    """Layer norms of heads, each with a weight of its own and without a bias (Command R+, StableLM 2 12B).

    Args:
        heads: N.
        size: H.
        eps: added to the variance.
        dtype: dtype of the weights [N, H].
    """

    def __init__(self, heads: int, size: int, *, eps: float = 1e-5, dtype: DType | str = "f32") -> None:
        self.weight = Parameter((heads, size), dtype)
        self.eps = eps

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [B, T, .., H] to the same shape; the axes between T and H are the heads, in one or more axes."""
        ops, wide = ctx.ops, as_dtype(x.dtype).accumulation
        weight = ops.reshape(ops.cast(ctx.parameter(self.weight), wide), x.shape[2:])
        return ops.cast(ops.mul(ops.layer_norm(ops.cast(x, wide), eps=self.eps), weight), x.dtype)


HeadNorm = RMSNorm | LayerNorm | LayerNormPerHead
"""Norm of queries or keys."""


def head_norm(norm: QueryKeyNorm | None, heads: int, size: int, dtype: DType | str) -> HeadNorm | None:
    """Makes the norm of ``heads`` heads of a size; None if there is none, or one without parameters."""
    if norm is None or not norm.weighted:
        return None
    if norm.kind is QueryKeyNormKind.LAYER:
        return LayerNorm(size, eps=norm.eps, dtype=dtype)
    if norm.kind is QueryKeyNormKind.LAYER_PER_HEAD:
        return LayerNormPerHead(heads, size, eps=norm.eps, dtype=dtype)
    return RMSNorm(heads * size if norm.whole else size, eps=norm.eps, zero_centred=norm.zero_centred, dtype=dtype)
