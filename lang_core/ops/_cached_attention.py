"""Attention over the entries of a cache."""

from typing import Any

import numpy as np

from lang_core._dtypes import f32, f64, i32
from lang_core._spec import TensorSpec
from lang_core._tensor import Tensor
from lang_core.ops._base import Operand, OpsBase
from lang_core.ops._op import Array, Specs, define_op, require


def _infer(q: TensorSpec, k: TensorSpec, v: TensorSpec, bias: TensorSpec, *rows_and_scale: Any) -> Specs:
    *rows, _ = rows_and_scale
    ranks = q.ndim == 5 and k.ndim == v.ndim == 4
    require(ranks, "cached_attention_c1", f"ranks {q.ndim}, {k.ndim}, {v.ndim}")
    batches = k.shape[0] > 0 if rows else k.shape[0] == q.shape[0]
    fits = (
        batches
        and k.shape[1] == q.shape[1]
        and k.shape[3] == q.shape[4]
        and v.shape[:3] == k.shape[:3]
        and k.shape[2] > 0
    )
    require(fits, "cached_attention_c1", f"q {q.shape}, k {k.shape}, v {v.shape}")
    same = q.dtype is k.dtype is v.dtype and q.dtype.is_floating and q.dtype is not f64
    require(same, "cached_attention_c2", f"dtypes {q.dtype}, {k.dtype}, {v.dtype}")
    batch, _, _, queries, _ = q.shape
    over = bias.ndim == 3 and bias.shape[0] in (1, batch) and bias.shape[1:] == (queries, k.shape[2])
    require(bias.dtype is f32 and over, "cached_attention_c3", f"the bias is {bias!r}, q {q.shape}, k {k.shape}")
    chosen = all(spec.dtype is i32 and spec.shape == (batch,) for spec in rows)
    require(chosen, "cached_attention_c4", f"rows are {rows} for q {q.shape}")
    return (TensorSpec((*q.shape[:4], v.shape[3]), v.dtype),)


def _eager(q: Array, k: Array, v: Array, bias: Array, *rows_and_scale: Any) -> Array:
    *rows, scale = rows_and_scale
    for row in rows:
        k, v = (x[np.clip(row, 0, len(x) - 1)] for x in (k, v))
    keys, values = (x.astype(np.float32, copy=False)[:, :, np.newaxis] for x in (k, v))
    scores = np.matmul(q.astype(np.float32, copy=False), keys.swapaxes(3, 4)) * np.float32(scale)
    scores += bias[:, np.newaxis, np.newaxis]
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.matmul(weights, values).astype(v.dtype, copy=False)


_CACHED_ATTENTION = define_op(
    "cached_attention",
    attributes=("scale",),
    summary="softmax(scale * q k^T + bias) v, in f32. Keys with a bias of -1e30 are hidden, and may be left out: some "
    "key of each query must not be. With rows i32 [B], sequence b has row rows[b] of k and v, clamped; k and v may "
    "then have any number of rows.",
    constraints=(
        "q is [B, K, G, T, H], k [B, K, S, H], v [B, K, S, H'], S not 0; with rows, k's and v's B is another, not 0",
        "the dtypes are equal: f32, f16 or bf16",
        "the bias is f32 [1, T, S] or [B, T, S]",
        "rows are i32 [B]",
    ),
    shape_rule=_infer,
    eager_rule=_eager,
)


class CachedAttentionOps(OpsBase):
    """Attention in prefill and decode."""

    __slots__ = ()

    def cached_attention(
        self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: float, rows: Operand | None = None
    ) -> Tensor:
        """Returns ``softmax(scale * q k^T + bias) v`` (Vaswani et al. 2017, arXiv:1706.03762), G heads for each of K.

        A kernel of it reads the keys that are not hidden: its cost goes with the length of a sequence, not with S. With
        rows it reads the caches where they lie, and no row is copied.

        Args:
            q: [B, K, G, T, H].
            k: [B, K, S, H]; with rows the first axis is of any length.
            v: [B, K, S, H']; likewise.
            bias: f32 [1, T, S] or [B, T, S]; -1e30 hides a key from a query.
            scale: of the scores.
            rows: i32 [B], rows of k and v that the sequences have, clamped; b for sequence b where None.

        Returns:
            [B, K, G, T, H'] in v's dtype.
        """
        chosen = () if rows is None else (rows,)
        return self._apply(_CACHED_ATTENTION, (q, k, v, bias, *chosen), (float(scale),))
