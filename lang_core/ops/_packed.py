"""Products with block-quantized weights, and the integer products that they are lowered to."""

from typing import Any, Final

import numpy as np

from lang_core._choices import checked_choices
from lang_core._dtypes import DType, as_dtype, f32, f64, i8, i32
from lang_core._packing import ACTIVATION_BITS, BLOCK, Activations, Encoding
from lang_core._spec import TensorSpec
from lang_core._tensor import Tensor
from lang_core.ops._elementwise import MathOps
from lang_core.ops._op import Array, Specs, define_op, require

PLANE_BASE: Final = 255
"""Base in which ``block_quantize`` writes integers of 16 bits: each of their two digits is in -127 .. 127."""
LARGEST_INTEGER: Final = {8: 127, 16: 127 * PLANE_BASE + 127}
"""Integer that the largest magnitude of a block becomes in ``block_quantize``, by bits."""
LEAST_MAGNITUDE: Final = 2.0**-100
"""Largest magnitude of a block that is taken for 0: the inverse of its scale stays finite."""
_ROWS_AT_ONCE: Final = 1 << 22  # elements of a weight that are unpacked at a time


def _infer_block_quantize(x: TensorSpec, bits: int) -> Specs:
    require(x.dtype.is_floating and x.dtype is not f64, "block_quantize_c1", f"the dtype is {x.dtype}")
    fits = x.ndim > 0 and x.shape[-1] > 0 and x.shape[-1] % BLOCK == 0
    require(fits, "block_quantize_c2", f"the shape is {x.shape}")
    require(bits in LARGEST_INTEGER, "block_quantize_c3", f"bits is {bits}")
    blocks = (*x.shape[:-1], x.shape[-1] // BLOCK)
    return TensorSpec((*x.shape[:-1], bits // 8, x.shape[-1]), i8), TensorSpec(blocks, f32), TensorSpec(blocks, i32)


def _eager_block_quantize(x: Array, bits: int) -> tuple[Array, Array, Array]:
    q, scale = _integers(x, bits)
    total = q.sum(axis=-1).astype(np.int32)
    q = q.reshape(x.shape)
    if bits == 8:
        return q.astype(np.int8)[..., np.newaxis, :], scale, total
    high = np.rint(q / np.float32(PLANE_BASE))
    return np.stack([high, q - high * PLANE_BASE], axis=-2).astype(np.int8), scale, total


def _integers(x: Array, bits: int) -> tuple[Array, Array]:
    """Returns integers f32 [.., K / 32, 32] and scales f32 [.., K / 32]."""
    largest = np.float32(LARGEST_INTEGER[bits])
    blocks = x.astype(np.float32).reshape(*x.shape[:-1], x.shape[-1] // BLOCK, BLOCK)
    most = np.abs(blocks).max(axis=-1)
    most = np.where(most < np.float32(LEAST_MAGNITUDE), np.float32(0), most)
    scale = most / largest
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse = np.where(most == 0, np.float32(0), np.float32(1) / scale)
        q = np.rint(blocks * inverse[..., np.newaxis])
    # Values that are not finite become 0; the scale of their block tells.
    return np.where(np.isfinite(q), q, np.float32(0)), scale


_BLOCK_QUANTIZE = define_op(
    "block_quantize",
    attributes=("bits",),
    summary="x [.., K] in blocks of 32: integers q = round(x / d), d = max|x| / m of f32, and the sum of each block's "
    "q. With 8 bits m is 127 and planes [.., 1, K] are q; with 16 bits m is 32512 and planes [.., 2, K] are high and "
    "low, each in -127 .. 127, with q = 255 * high + low. A block whose magnitudes are all below 2**-100 is 0.",
    constraints=(
        "the dtype is f32, f16 or bf16",
        "the last dimension is a multiple of 32, and not 0",
        "bits is 8 or 16",
    ),
    shape_rule=_infer_block_quantize,
    eager_rule=_eager_block_quantize,
)


def _infer_block_product(
    planes: TensorSpec, scale: TensorSpec, total: TensorSpec, weight: TensorSpec, encoding: Encoding, dtype: DType
) -> Specs:
    require_blocks("block_product_c1", planes, scale, total, fits=planes.ndim > 1)
    require_weight("block_product_c2", weight, encoding, planes.shape[-1], fits=weight.ndim == 2)
    require(dtype.is_floating, "block_product_c3", f"the dtype is {dtype}")
    return (TensorSpec((*planes.shape[:-2], weight.shape[0]), dtype),)


def require_blocks(label: str, planes: TensorSpec, scale: TensorSpec, total: TensorSpec, *, fits: bool) -> None:
    """Checks that operands are as ``block_quantize`` gives them; ``fits`` tells whether the planes have a good rank."""
    fits = fits and planes.dtype is i8 and planes.shape[-2] in (1, 2)
    require(fits, label, f"planes is {planes!r}")
    blocks = (*planes.shape[:-2], planes.shape[-1] // BLOCK)
    fits = scale == TensorSpec(blocks, f32) and total == TensorSpec(blocks, i32)
    require(fits, label, f"planes is {planes!r}, scale {scale!r}, total {total!r}")


def require_weight(label: str, weight: TensorSpec, encoding: Encoding, wanted: int, *, fits: bool) -> None:
    """Checks that a packed weight has so many columns; ``fits`` tells whether its shape is good otherwise."""
    columns = encoding.columns(weight.shape[-1]) if fits and weight.dtype is i8 else None
    reason = f"the weight is {weight!r}" + ("" if columns is None else f", {columns} columns as {encoding.name}")
    require(columns == wanted, label, reason)


def _eager_block_product(
    planes: Array, scale: Array, total: Array, w: Array, encoding: Encoding, dtype: DType
) -> Array:
    del total
    return unpacked_product(scaled_planes(planes, scale), w, encoding, dtype)


def scaled_planes(planes: Array, scale: Array) -> Array:
    """Returns x f32 [.., K] of planes i8 [.., 1 or 2, K] and scales [.., K / 32]."""
    q = planes[..., 0, :].astype(np.float32)
    if planes.shape[-2] == 2:
        q = q * np.float32(PLANE_BASE) + planes[..., 1, :]
    return _scaled(q.reshape(*scale.shape, BLOCK), scale)


def _scaled(q: Array, scale: Array) -> Array:
    """Returns x [.., K] of its integers [.., K / 32, 32] and scales [.., K / 32]."""
    with np.errstate(invalid="ignore"):
        return (q * scale[..., np.newaxis]).reshape(*scale.shape[:-1], BLOCK * scale.shape[-1])


def unpacked_product(x: Array, w: Array, encoding: Encoding, dtype: DType) -> Array:
    """Returns x f32 [.., K] times the unpacked rows of w, some rows at a time, summed in f32."""
    columns = x.shape[-1]
    matrix = x.reshape(-1, columns)
    result = np.empty((len(matrix), len(w)), np.float32)
    rows = max(1, _ROWS_AT_ONCE // columns)
    for start in range(0, len(w), rows):
        part = slice(start, start + rows)
        np.matmul(matrix, encoding.unpacked(w[part]).T, out=result[:, part])
    with np.errstate(over="ignore"):
        return result.reshape(*x.shape[:-1], len(w)).astype(dtype.numpy, copy=False)


_BLOCK_PRODUCT = define_op(
    "block_product",
    attributes=("encoding", "dtype"),
    summary="(q * scale) @ weight.T, summed in f32, then rounded to the dtype: what block_quantize gives, and a packed "
    "weight [N, K].",
    constraints=(
        "planes is i8 [.., 1, K] or [.., 2, K], with scale f32 [.., K / 32] and total i32 [.., K / 32] as "
        "block_quantize gives them",
        "the weight is an i8 matrix of N rows of whole blocks of the encoding, K columns as these",
        "the dtype is floating",
    ),
    shape_rule=_infer_block_product,
    eager_rule=_eager_block_product,
)


def _infer_packed_linear(
    x: TensorSpec, weight: TensorSpec, encoding: Encoding, dtype: DType, activations: Activations
) -> Specs:
    fits = x.ndim > 0 and x.dtype.is_floating and x.dtype is not f64
    require(fits, "packed_linear_c1", f"x is {x!r}")
    require_weight("packed_linear_c2", weight, encoding, x.shape[-1], fits=weight.ndim == 2)
    require(dtype.is_floating, "packed_linear_c3", f"the dtype is {dtype}")
    require(activations in ACTIVATION_BITS, "packed_linear_c4", f"activations is {activations!r}")
    return (TensorSpec((*x.shape[:-1], weight.shape[0]), dtype),)


def _eager_packed_linear(x: Array, w: Array, encoding: Encoding, dtype: DType, activations: Activations) -> Array:
    return unpacked_product(activations_of(x, activations), w, encoding, dtype)


def activations_of(x: Array, activations: Activations) -> Array:
    """Returns x [.., K] in f32, rounded if the activations are."""
    return x.astype(np.float32, copy=False) if activations == "exact" else _scaled(*_integers(x, 8))


PACKED_LINEAR: Final = define_op(
    "packed_linear",
    attributes=("encoding", "dtype", "activations"),
    summary="x @ weight.T of a packed weight [N, K], summed in f32, then rounded to the dtype. With activations q8 x "
    "is rounded to 8 bits in blocks of 32 first. Lowered, x is taken in 16 bits, or 8, by block_quantize.",
    constraints=(
        "x is f32, f16 or bf16 [.., K]",
        "the weight is an i8 matrix of N rows of whole blocks of the encoding, K columns",
        "the dtype is floating",
        "activations is exact or q8",
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


_DEQUANTIZE = define_op(
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

    def block_quantize(self, x: Tensor, bits: int = 16) -> tuple[Tensor, Tensor, Tensor]:
        """Quantises x [.., K] in blocks of 32: planes i8 [.., bits / 8, K], scales f32 and sums i32 [.., K / 32].

        With 16 bits an integer is 255 * high + low, and the planes are high and low. Values that are not finite give
        unspecified integers; a NaN or infinity is also in its block's scale.

        Args:
            x: floating, of 16 or 32 bits.
            bits: 8 or 16.
        """
        planes, scale, total = self._ctx.apply(_BLOCK_QUANTIZE, (x,), (bits,))
        return planes, scale, total

    def block_product(
        self,
        blocks: tuple[Tensor, Tensor, Tensor],
        weight: Tensor,
        encoding: Encoding,
        dtype: DType | str = "f32",
    ) -> Tensor:
        """Returns x [.., K] @ weight [N, K].T: [.., N], of x in blocks as ``block_quantize`` gives it."""
        return self._apply(_BLOCK_PRODUCT, (*blocks, weight), (encoding, as_dtype(dtype)))

    @checked_choices
    def packed_linear(
        self,
        x: Tensor,
        weight: Tensor,
        encoding: Encoding,
        dtype: DType | str | None = None,
        activations: Activations = "exact",
    ) -> Tensor:
        """``x [.., K] @ weight [N, K].T``: [.., N].

        Args:
            x: floating, of 16 or 32 bits.
            weight: packed: i8 [N, K / block * block_bytes].
            encoding: of the weight.
            dtype: of the result; x's if None.
            activations: ``exact``, or ``q8`` to round x to 8 bits in blocks of 32 first, as llama.cpp does.
        """
        wanted = as_dtype(x.dtype if dtype is None else dtype)
        return self._ctx.composite("packed_linear", self._packed_linear, (x, weight), (encoding, wanted, activations))

    def _packed_linear(
        self, x: Tensor, weight: Tensor, encoding: Encoding, dtype: DType, activations: Activations
    ) -> Tensor:
        return self._apply(PACKED_LINEAR, (x, weight), (encoding, dtype, activations))

    def dequantize(self, packed: Tensor, encoding: Encoding, dtype: DType | str = "f32") -> Tensor:
        """Returns weights [.., K] of packed blocks i8 [.., K / block * block_bytes]."""
        return self._apply(_DEQUANTIZE, (packed,), (encoding, as_dtype(dtype)))
