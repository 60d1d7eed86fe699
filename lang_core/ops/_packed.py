"""Products with block-quantised weights, whose other operand is quantised in blocks too, as llama.cpp does."""

from typing import Any, Final

import numpy as np

from lang_core._dtypes import DType, as_dtype, f32, f64, i8, i32
from lang_core._packing import BLOCK, Encoding
from lang_core._spec import TensorSpec
from lang_core._tensor import Tensor
from lang_core.ops._elementwise import MathOps
from lang_core.ops._op import Array, Specs, define, require

_MOST: Final = 127.0
# The largest magnitude of a block that is taken for 0: the inverse of its scale stays finite.
LEAST_MAGNITUDE: Final = 2.0**-100
_ROWS_AT_ONCE: Final = 1 << 22  # elements of a weight that are unpacked at a time


def _infer_block_quantize(x: TensorSpec) -> Specs:
    require(x.dtype.is_floating and x.dtype is not f64, "block_quantize_c1", f"the dtype is {x.dtype}")
    fits = x.ndim > 0 and x.shape[-1] > 0 and x.shape[-1] % BLOCK == 0
    require(fits, "block_quantize_c2", f"the shape is {x.shape}")
    blocks = (*x.shape[:-1], x.shape[-1] // BLOCK)
    return TensorSpec(x.shape, i8), TensorSpec(blocks, f32), TensorSpec(blocks, i32)


def _eager_block_quantize(x: Array) -> tuple[Array, Array, Array]:
    blocks = x.astype(np.float32).reshape(*x.shape[:-1], x.shape[-1] // BLOCK, BLOCK)
    most = np.abs(blocks).max(axis=-1)
    most = np.where(most < np.float32(LEAST_MAGNITUDE), np.float32(0), most)
    scale = most / np.float32(_MOST)
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse = np.where(most == 0, np.float32(0), np.float32(1) / scale)
        q = np.rint(blocks * inverse[..., np.newaxis]).astype(np.int8)
    return q.reshape(x.shape), scale, q.sum(axis=-1, dtype=np.int32)


_BLOCK_QUANTIZE = define(
    "block_quantize",
    summary="x in blocks of 32 along its last axis: integers q = round(x / d) of i8, d = max|x| / 127 of f32, and the "
    "sum of each block's q. A block whose magnitudes are all below 2**-100 is 0.",
    constraints=("the dtype is f32, f16 or bf16", "the last dimension is a multiple of 32, and not 0"),
    shape_rule=_infer_block_quantize,
    eager_rule=_eager_block_quantize,
)


def _infer_packed_linear(
    q: TensorSpec, scale: TensorSpec, total: TensorSpec, weight: TensorSpec, encoding: Encoding, dtype: DType
) -> Specs:
    require(q.dtype is i8 and q.ndim > 0, "packed_linear_c1", f"q is {q!r}")
    blocks = (*q.shape[:-1], q.shape[-1] // BLOCK)
    fits = scale == TensorSpec(blocks, f32) and total == TensorSpec(blocks, i32)
    require(fits, "packed_linear_c1", f"q is {q!r}, scale {scale!r}, total {total!r}")
    columns = encoding.columns(weight.shape[-1]) if weight.ndim == 2 and weight.dtype is i8 else None
    reason = f"the weight is {weight!r}" + ("" if columns is None else f", {columns} columns as {encoding.name}")
    require(columns == q.shape[-1], "packed_linear_c2", reason)
    require(dtype.is_floating, "packed_linear_c3", f"the dtype is {dtype}")
    return (TensorSpec((*q.shape[:-1], weight.shape[0]), dtype),)


def _eager_packed_linear(q: Array, scale: Array, total: Array, w: Array, encoding: Encoding, dtype: DType) -> Array:
    del total
    columns = q.shape[-1]
    x = (q.reshape(*scale.shape, BLOCK).astype(np.float32) * scale[..., np.newaxis]).reshape(-1, columns)
    result = np.empty((len(x), len(w)), np.float32)
    rows = max(1, _ROWS_AT_ONCE // columns)
    for start in range(0, len(w), rows):
        part = slice(start, start + rows)
        np.matmul(x, encoding.unpacked(w[part]).T, out=result[:, part])
    with np.errstate(over="ignore"):
        return result.reshape(*q.shape[:-1], len(w)).astype(dtype.numpy, copy=False)


_PACKED_LINEAR = define(
    "packed_linear",
    attributes=("encoding", "dtype"),
    summary="(q * scale) @ weight.T, summed in f32, then rounded to the dtype: what block_quantize gives, and a packed "
    "weight [N, K].",
    constraints=(
        "q is i8 [.., K], with scale f32 [.., K / 32] and total i32 [.., K / 32] as block_quantize gives them",
        "the weight is an i8 matrix of N rows of whole blocks of the encoding, K columns as these",
        "the dtype is floating",
    ),
    shape_rule=_infer_packed_linear,
    eager_rule=_eager_packed_linear,
)


def _infer_dequantize(packed: TensorSpec, encoding: Encoding, dtype: DType) -> Specs:
    columns = (encoding.columns(packed.shape[-1]) or 0) if packed.ndim and packed.dtype is i8 else 0
    require(columns > 0, "dequantize_c1", f"{packed!r} as {encoding.name}")
    require(dtype.is_floating, "dequantize_c2", f"the dtype is {dtype}")
    return (TensorSpec((*packed.shape[:-1], columns), dtype),)


def _eager_dequantize(packed: Array, encoding: Encoding, dtype: DType) -> Any:
    with np.errstate(over="ignore"):
        return encoding.unpacked(packed).astype(dtype.numpy, copy=False)


_DEQUANTIZE = define(
    "dequantize",
    attributes=("encoding", "dtype"),
    summary="The weights of packed blocks: in f32 as the gguf package gives them, then rounded to the dtype.",
    constraints=(
        "the operand is i8, and its last dimension is whole blocks of the encoding, at least one",
        "the dtype is floating",
    ),
    shape_rule=_infer_dequantize,
    eager_rule=_eager_dequantize,
)


class PackedOps(MathOps):
    """Ops on block-quantised weights."""

    __slots__ = ()

    def block_quantize(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Quantises x [.., K] in blocks of 32: integers i8 [.., K], scales f32 [.., K / 32], sums i32 [.., K / 32].

        What is not finite gives unspecified integers; a NaN or infinity is also in its block's scale.
        """
        q, scale, total = self._ctx.apply(_BLOCK_QUANTIZE, (x,))
        return q, scale, total

    def packed_linear(self, x: Tensor, weight: Tensor, encoding: Encoding, dtype: DType | str | None = None) -> Tensor:
        """``x [.., K] @ weight [N, K].T``: [.., N], x rounded by ``block_quantize`` first.

        Args:
            x: floating, of 16 or 32 bits.
            weight: packed: i8 [N, K / block * block_bytes].
            encoding: of the weight.
            dtype: of the result; x's where None.
        """
        wanted = as_dtype(x.dtype if dtype is None else dtype)
        return self._ctx.composite("packed_linear", self._packed_linear, (x, weight), (encoding, wanted))

    def _packed_linear(self, x: Tensor, weight: Tensor, encoding: Encoding, dtype: DType) -> Tensor:
        return self._apply(_PACKED_LINEAR, (*self.block_quantize(x), weight), (encoding, dtype))

    def dequantize(self, packed: Tensor, encoding: Encoding, dtype: DType | str = "f32") -> Tensor:
        """Returns weights [.., K] of packed blocks i8 [.., K / block * block_bytes]."""
        return self._apply(_DEQUANTIZE, (packed,), (encoding, as_dtype(dtype)))
