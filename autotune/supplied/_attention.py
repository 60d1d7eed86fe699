"""Attention: all scores at once, in two layouts, or block by block with a running softmax."""

from dataclasses import dataclass
from typing import Any, Final, Literal

from autotune import Invocation, Kernel
from autotune.supplied._attention_forms import causal as causal_mask
from autotune.supplied._attention_forms import merged, online
from lang_core import ExecutionContext, OpError, Tensor, checked_choices
from transformer_core import grouped_attention

# Largest number of blocks: each is written out in the graph.
_MOST_BLOCKS: Final = 64


@checked_choices
@dataclass(frozen=True)
class AttentionConfig:
    """Configuration of attention.

    Attributes:
        form: ``grouped`` (``ctx.ops.attention``: the query heads of a key head are an axis), ``merged`` (they are rows
            of one product), or ``online`` (block by block: Milakov, Gimelshein 2018, arXiv:1805.02867; Dao 2023,
            arXiv:2307.08691; blocks that a causal mask hides are left out).
        queries: number of queries of a block, for ``online``.
        keys: number of keys of a block, for ``online``.
    """

    form: Literal["grouped", "merged", "online"] = "grouped"
    queries: int = 0
    keys: int = 0


class AttentionKernel(Kernel[AttentionConfig, Tensor]):
    """``softmax(scale * q k^T, where mask) v``; see ``ctx.ops.attention``.

    Arguments of a call: q [B, N, T, H], k [B, K, S, H], v [B, K, S, H'], mask (bool, broadcast to [B, N, T, S], or
    None), and ``scale``, ``causal`` (query t is at position S - T + t, and does not attend to later keys).
    """

    op_id = "attention"

    @checked_choices
    def run(
        self,
        q: Any,
        k: Any,
        v: Any,
        mask: Any = None,
        *,
        cfg: AttentionConfig,
        ctx: ExecutionContext,
        scale: float | None = None,
        causal: bool = False,
    ) -> Tensor:
        """Returns [B, N, T, H'] in q's dtype.

        Raises:
            OpError: q and k do not have shapes of attention.
        """
        if len(q.shape) != 4 or len(k.shape) != 4 or q.shape[1] % max(k.shape[1], 1):
            raise OpError(
                f"attention of {tuple(q.shape)}, {tuple(k.shape)}: expected q [B,N,T,H], k [B,K,S,H], K a divisor of N"
            )
        if causal and cfg.form != "online":
            seen = causal_mask(ctx, q.shape[2], k.shape[2], range(q.shape[2]), range(k.shape[2]))
            mask = seen if mask is None else ctx.ops.logical_and(mask, seen)
        if cfg.form == "grouped":
            return ctx.ops.attention(q, k, v, mask, scale=scale)
        batch, heads, queries, size = q.shape
        shared, group = k.shape[1], heads // k.shape[1]
        grouped = ctx.ops.reshape(q, (batch, shared, group, queries, size))
        mask = None if mask is None else _per_group(ctx, mask, shared, group)
        result = _in_form(ctx, cfg, grouped, k, v, mask, None, _scale(q, scale), q.dtype, is_causal=causal)
        return ctx.ops.reshape(result, (batch, heads, queries, v.shape[3]))

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> AttentionConfig:
        """Returns the form with all scores at once."""
        return AttentionConfig()

    def candidate_cfgs(self, inv: Invocation[Any, Any]) -> list[AttentionConfig]:
        """Returns both layouts, and blocks that are smaller than the whole."""
        return _candidates(inv.args[0].shape[2], inv.args[1].shape[2])


class GroupedAttentionKernel(Kernel[AttentionConfig, Tensor]):
    """``softmax(scale * q k^T + bias) v``; see ``transformer_core.grouped_attention``, which models call.

    Arguments of a call: q [B, K, G, T, H], k [B, K, S, H], v [B, K, S, H'], bias (broadcast to [B, K, G, T, S], or
    None), and ``scale``.
    """

    op_id = "grouped_attention"

    def run(
        self,
        q: Any,
        k: Any,
        v: Any,
        bias: Any = None,
        *,
        cfg: AttentionConfig,
        ctx: ExecutionContext,
        scale: float | None = None,
    ) -> Tensor:
        """Returns [B, K, G, T, H'] in v's dtype."""
        if cfg.form == "grouped":
            return grouped_attention(ctx, q, k, v, bias, scale)
        if bias is not None and len(bias.shape) < 2:
            bias = ctx.ops.reshape(bias, (*[1] * (5 - len(bias.shape)), *bias.shape))
        return _in_form(ctx, cfg, q, k, v, None, bias, _scale(q, scale), v.dtype)

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> AttentionConfig:
        """Returns the form with all scores at once, which models use."""
        return AttentionConfig()

    def candidate_cfgs(self, inv: Invocation[Any, Any]) -> list[AttentionConfig]:
        """Returns both layouts, and blocks that are smaller than the whole."""
        return _candidates(inv.args[0].shape[3], inv.args[1].shape[2])


def _candidates(queries: int, keys: int) -> list[AttentionConfig]:
    configs = [AttentionConfig(), AttentionConfig("merged")]
    for rows in (32, 64, 128, 256):
        for columns in (64, 128, 256, 512):
            blocks = -(-queries // rows) * -(-keys // columns)
            if rows <= columns and columns < keys and (rows < queries or queries <= 32) and blocks <= _MOST_BLOCKS:
                configs.append(AttentionConfig("online", rows, columns))
    return configs


def _in_form(
    ctx: ExecutionContext,
    cfg: AttentionConfig,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    bias: Any,
    scale: float,
    dtype: Any,
    *,
    is_causal: bool = False,
) -> Tensor:
    """Computes attention in the form ``merged`` or ``online``."""
    if cfg.form == "merged":
        return merged(ctx, q, k, v, mask, bias, scale, dtype)
    blocks = cfg.queries, cfg.keys
    return online(ctx, q, k, v, mask, bias, scale, dtype, blocks=blocks, is_causal=is_causal)


def _scale(q: Any, scale: float | None) -> float:
    return max(q.shape[-1], 1) ** -0.5 if scale is None else scale


def _per_group(ctx: ExecutionContext, mask: Any, shared: int, group: int) -> Tensor:
    """Reshapes a mask that broadcasts to [B, N, T, S] into one that broadcasts to [B, K, G, T, S]."""
    shape = (*[1] * (4 - len(mask.shape)), *mask.shape)
    heads = (shared, group) if shape[1] > 1 else (1, 1)
    return ctx.ops.reshape(mask, (shape[0], *heads, *shape[2:]))
