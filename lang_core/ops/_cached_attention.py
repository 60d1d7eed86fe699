"""Attention over the entries of a cache."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from lang_core._dtypes import f32, f64, i32
from lang_core._spec import TensorSpec
from lang_core._tensor import Tensor
from lang_core.ops._base import Operand, OpsBase
from lang_core.ops._op import Array, Specs, define_op, require

_HIDDEN: Final = -1e30
_PAGED: Final = 2  # rank of rows of which each sequence has several


def _infer(q: TensorSpec, k: TensorSpec, v: TensorSpec, bias: TensorSpec, *rows_and_scale: Any) -> Specs:
    *rows, _ = rows_and_scale
    same = q.dtype is k.dtype is v.dtype and q.dtype.is_floating and q.dtype is not f64
    require(same, "cached_attention_c2", f"dtypes {q.dtype}, {k.dtype}, {v.dtype}")
    return (attended_spec("cached_attention", (1, 3, 4), q, k, v, bias, rows),)


def attended_spec(
    op: str,
    numbers: tuple[int, int, int],
    q: TensorSpec,
    k: TensorSpec,
    v: TensorSpec,
    bias: TensorSpec,
    rows: Sequence[TensorSpec],
) -> TensorSpec:
    """Returns the spec of attention over caches.

    Args:
        op: name of the op.
        numbers: numbers of its constraints on shapes, on the bias and on the rows.
        q: [B, K, G, T, H].
        k: [B, K, S, H].
        v: [B, K, S, H'].
        bias: f32 [1 or B, T, S].
        rows: rows of the sequences, or nothing.
    """
    of_shapes, of_bias, of_rows = (f"{op}_c{number}" for number in numbers)
    require(q.ndim == 5 and k.ndim == v.ndim == 4, of_shapes, f"ranks {q.ndim}, {k.ndim}, {v.ndim}")
    fits = (
        (k.shape[0] > 0 if rows else k.shape[0] == q.shape[0])
        and k.shape[1] == q.shape[1]
        and k.shape[3] == q.shape[4]
        and v.shape[:3] == k.shape[:3]
        and k.shape[2] > 0
    )
    require(fits, of_shapes, f"q {q.shape}, k {k.shape}, v {v.shape}")
    batch, _, _, queries, _ = q.shape
    keys = k.shape[2] * (rows[0].shape[1] if rows and rows[0].ndim == _PAGED else 1)
    over = bias.ndim == 3 and bias.shape[0] in (1, batch) and bias.shape[1:] == (queries, keys)
    require(bias.dtype is f32 and over, of_bias, f"the bias is {bias!r}, q {q.shape}, k {k.shape}")
    chosen = all(spec.dtype is i32 and _choose(spec.shape, batch) for spec in rows)
    require(chosen, of_rows, f"rows are {list(rows)} for q {q.shape}")
    return TensorSpec((*q.shape[:4], v.shape[3]), q.dtype)


def _choose(shape: tuple[int, ...], batch: int) -> bool:
    """Returns whether rows of this shape choose one for each of B sequences, or several."""
    return shape == (batch,) or (len(shape) == _PAGED and shape[0] == batch and shape[1] > 1)


def chosen_entries(cache: Array, rows: Sequence[Array], shown: int) -> Array:
    """Returns of a cache the first entries of each sequence, from its row or rows if there are some: [B, K, S, H]."""
    for chosen in rows:
        row = np.clip(chosen, 0, len(cache) - 1)
        if row.ndim < _PAGED:
            return cache[:, :, :shown][row]
        taken = cache[row[:, : -(-shown // cache.shape[2])]]
        batch, pages, heads, page, size = taken.shape
        return taken.swapaxes(1, 2).reshape(batch, heads, pages * page, size)[:, :, :shown]
    return cache[:, :, :shown]


def _eager(q: Array, k: Array, v: Array, bias: Array, *rows_and_scale: Any) -> Array:
    *rows, scale = rows_and_scale
    shown = shown_keys(bias)
    k, v = (chosen_entries(x, rows, shown) for x in (k, v))
    return attended(q, k, v, bias[..., :shown], scale).astype(v.dtype, copy=False)


def attended(q: Array, k: Array, v: Array, bias: Array, scale: float) -> Array:
    """Returns f32 ``softmax(scale * q k^T + bias) v``."""
    keys, values = (x.astype(np.float32, copy=False)[:, :, np.newaxis] for x in (k, v))
    scores = np.matmul(q.astype(np.float32, copy=False), keys.swapaxes(3, 4)) * np.float32(scale)
    scores += bias[:, np.newaxis, np.newaxis]
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.matmul(weights, values)


def shown_keys(bias: Array) -> int:
    """Returns the number of keys up to the last key that a query sees; all if none is seen."""
    seen = np.flatnonzero((bias > _HIDDEN).any(axis=(0, 1)))
    return int(seen[-1]) + 1 if seen.size else bias.shape[-1]


_CACHED_ATTENTION = define_op(
    "cached_attention",
    attributes=("scale",),
    summary="softmax(scale * q k^T + bias) v, in f32. Keys with a bias of -1e30 are hidden, and may be left out: some "
    "key of each query must not be. With rows i32 [B], sequence b has row rows[b] of k and v, clamped; k and v may "
    "then have any number of rows. With rows i32 [B, M], it has the rows rows[b], one after the other: pages of S / M "
    "positions.",
    constraints=(
        "q is [B, K, G, T, H], k [B, K, S, H], v [B, K, S, H'], S not 0; with rows, k's and v's B is another, not 0, "
        "and with rows [B, M] their S is S / M",
        "the dtypes are equal: f32, f16 or bf16",
        "the bias is f32 [1, T, S] or [B, T, S]",
        "rows are i32 [B], or [B, M] with M > 1",
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
        rows it reads the caches in place, without copying rows; with pages it reads the table.

        Args:
            q: [B, K, G, T, H].
            k: [B, K, S, H]; with rows the first axis is of any length: [P, K, S / M, H] with pages.
            v: [B, K, S, H']; likewise.
            bias: f32 [1, T, S] or [B, T, S]; -1e30 hides a key from a query.
            scale: of the scores.
            rows: i32 [B], rows of k and v that the sequences have, clamped; b for sequence b if None. Or i32 [B, M],
                a table of pages: position p of sequence b is entry ``p mod (S / M)`` of row ``rows[b, p // (S / M)]``.

        Returns:
            [B, K, G, T, H'] in v's dtype.
        """
        chosen = () if rows is None else (rows,)
        return self._apply(_CACHED_ATTENTION, (q, k, v, bias, *chosen), (float(scale),))
