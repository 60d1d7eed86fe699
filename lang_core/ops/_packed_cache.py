"""Quantized caches: entries packed in blocks as they are appended, and attention that reads the blocks."""

from typing import Any, Final

import numpy as np

from lang_core._dtypes import f64, i8
from lang_core._packing import Encoding
from lang_core._spec import TensorSpec
from lang_core._tensor import Tensor
from lang_core.ops._base import Operand
from lang_core.ops._cached_attention import CachedAttentionOps, attended, attended_spec, chosen_entries, shown_keys
from lang_core.ops._op import Array, Specs, define_op, require
from lang_core.ops._packed import LEAST_MAGNITUDE

CACHE_ENCODINGS: Final = ("q8_0", "q4_0")
"""Encodings that keys and values can be packed in while a model runs."""
_NAN: Final = np.float16("nan")


def _infer_quantize(x: TensorSpec, encoding: Encoding) -> Specs:
    require(x.dtype.is_floating and x.dtype is not f64, "quantize_c1", f"the dtype is {x.dtype}")
    require(encoding.takes(x.shape), "quantize_c2", f"the shape is {x.shape}")
    require(encoding.name in CACHE_ENCODINGS, "quantize_c3", f"the encoding is {encoding.name}")
    return (encoding.packed(x),)


def _eager_quantize(x: Array, encoding: Encoding) -> Array:
    wide = x.astype(np.float32) + np.float32(0)  # a zero has no sign
    blocks = wide.reshape(*x.shape[:-1], x.shape[-1] // encoding.block, encoding.block)
    good = np.asarray(np.isfinite(blocks).all(axis=-1, keepdims=True))
    kept = good & (np.abs(blocks).max(axis=-1, keepdims=True) >= np.float32(LEAST_MAGNITUDE))
    packed = encoding.pack(np.where(kept, blocks, np.float32(0)))
    halves = packed[..., encoding.layout.scale : encoding.layout.scale + 2].view(np.float16)
    halves[~good | ~np.isfinite(halves)] = _NAN
    return packed.reshape(*x.shape[:-1], packed.shape[-2] * packed.shape[-1])


_QUANTIZE = define_op(
    "quantize",
    attributes=("encoding",),
    summary="x [.., K] in blocks of 32, packed as the gguf package packs weights: i8 [.., bytes]. The scale of a block "
    "is NaN if one of its numbers is not finite, or if the scale is too large for f16. A block whose magnitudes are "
    "all below 2**-100 is 0.",
    constraints=(
        "the dtype is f32, f16 or bf16",
        "the last dimension is a multiple of the encoding's block, and not 0",
        "the encoding is q8_0 or q4_0",
    ),
    shape_rule=_infer_quantize,
    eager_rule=_eager_quantize,
)


def _infer(q: TensorSpec, k: TensorSpec, v: TensorSpec, bias: TensorSpec, *others: Any) -> Specs:
    *rows, _, encoding = others
    columns = [encoding.columns(spec.shape[-1]) if spec.ndim and spec.dtype is i8 else None for spec in (k, v)]
    packed = f"k is {k!r}, v {v!r}, in {encoding.name}"
    require(all(columns), "packed_cached_attention_c1", packed)
    require(q.dtype.is_floating and q.dtype is not f64, "packed_cached_attention_c2", f"the dtype is {q.dtype}")
    k, v = (TensorSpec((*spec.shape[:-1], size or 0), q.dtype) for spec, size in zip((k, v), columns, strict=True))
    return (attended_spec("packed_cached_attention", (3, 4, 5), q, k, v, bias, rows),)


def _eager(q: Array, k: Array, v: Array, bias: Array, *others: Any) -> Array:
    *rows, scale, encoding = others
    shown = shown_keys(bias)
    k, v = (encoding.unpacked(chosen_entries(x, rows, shown)) for x in (k, v))
    return attended(q, k, v, bias[..., :shown], scale).astype(q.dtype, copy=False)


_PACKED_CACHED_ATTENTION = define_op(
    "packed_cached_attention",
    attributes=("scale", "encoding"),
    summary="cached_attention of keys and values that are packed along their last axis, as by quantize: they are "
    "unpacked to f32, and not rounded.",
    constraints=(
        "k and v are i8, and their last dimensions whole blocks of the encoding, at least one",
        "q is f32, f16 or bf16",
        "q is [B, K, G, T, H], k [B, K, S, H], v [B, K, S, H'] unpacked, S not 0; with rows, k's and v's B is another, "
        "not 0, and with rows [B, M] their S is S / M",
        "the bias is f32 [1, T, S] or [B, T, S]",
        "rows are i32 [B], or [B, M] with M > 1",
    ),
    shape_rule=_infer,
    eager_rule=_eager,
)


class PackedCacheOps(CachedAttentionOps):
    """Ops on quantized caches."""

    __slots__ = ()

    def quantize(self, x: Tensor, encoding: Encoding) -> Tensor:
        """Packs x [.., K] as i8 [.., K / 32 * block_bytes]; ``dequantize`` is the inverse.

        Args:
            x: f32, f16 or bf16.
            encoding: q8_0 or q4_0.
        """
        return self._apply(_QUANTIZE, (x,), (encoding,))

    def packed_cached_attention(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor,
        scale: float,
        encoding: Encoding,
        rows: Operand | None = None,
    ) -> Tensor:
        """Returns ``cached_attention`` of packed keys and values, which kernels read as they are.

        Args:
            q: [B, K, G, T, H].
            k: i8 [B, K, S, H / 32 * block_bytes]; with rows as for ``cached_attention``.
            v: i8 [B, K, S, H' / 32 * block_bytes].
            bias: as for ``cached_attention``.
            scale: of the scores.
            encoding: of k and v.
            rows: as for ``cached_attention``.

        Returns:
            [B, K, G, T, H'] in q's dtype.
        """
        chosen = () if rows is None else (rows,)
        return self._apply(_PACKED_CACHED_ATTENTION, (q, k, v, bias, *chosen), (float(scale), encoding))
