"""Products with block-quantised weights of stacked experts, of which each group of rows has one."""

import numpy as np

from lang_core._choices import checked_choices
from lang_core._dtypes import DType, as_dtype, f64, i32
from lang_core._packing import ACTIVATION_BITS, Activations, Encoding
from lang_core._spec import TensorSpec
from lang_core._tensor import Tensor
from lang_core.ops._op import Array, Specs, define_op, require
from lang_core.ops._packed import (
    PackedOps,
    activations_of,
    require_blocks,
    require_weight,
    scaled_planes,
    unpacked_product,
)


def _require_operands(
    op: str, x: TensorSpec, expert: TensorSpec, weight: TensorSpec, encoding: Encoding, dtype: DType
) -> None:
    """Checks constraints 2 to 4 of both ops."""
    fits = expert.dtype is i32 and expert.ndim == 1 and x.shape[0] > 0 and expert.shape[0] % x.shape[0] == 0
    require(fits, f"{op}_c2", f"expert is {expert!r}, and x has {x.shape[0]} groups")
    require_weight(f"{op}_c3", weight, encoding, x.shape[-1], fits=weight.ndim == 3 and weight.shape[0] > 0)
    require(dtype.is_floating, f"{op}_c4", f"the dtype is {dtype}")


_OPERANDS = (
    "expert is i32 [G], and G is a multiple of X, which is not 0",
    "the weight is i8 [E, N, bytes], E not 0, its rows whole blocks of the encoding, K columns",
    "the dtype is floating",
)


def _infer_expert_block_product(
    planes: TensorSpec,
    scale: TensorSpec,
    total: TensorSpec,
    expert: TensorSpec,
    weight: TensorSpec,
    encoding: Encoding,
    dtype: DType,
) -> Specs:
    require_blocks("expert_block_product_c1", planes, scale, total, fits=planes.ndim == 4)
    _require_operands("expert_block_product", planes, expert, weight, encoding, dtype)
    return (TensorSpec((expert.shape[0], planes.shape[1], weight.shape[1]), dtype),)


def _eager_expert_block_product(
    planes: Array, scale: Array, total: Array, expert: Array, w: Array, encoding: Encoding, dtype: DType
) -> Array:
    del total
    return _product(scaled_planes(planes, scale), expert, w, encoding, dtype)


def _product(x: Array, expert: Array, w: Array, encoding: Encoding, dtype: DType) -> Array:
    """Returns x f32 [X, R, K] times the unpacked weights of experts i32 [G], and reads only their bytes: [G, R, N]."""
    result = np.empty((len(expert), x.shape[1], w.shape[1]), dtype.numpy)
    chosen = np.clip(expert, 0, len(w) - 1)
    for number in np.unique(chosen):
        groups = np.flatnonzero(chosen == number)
        rows = x[groups // (len(expert) // len(x))]
        result[groups] = unpacked_product(rows, w[number], encoding, dtype)
    return result


_EXPERT_BLOCK_PRODUCT = define_op(
    "expert_block_product",
    attributes=("encoding", "dtype"),
    summary="What packed_expert_linear is, of x in blocks as block_quantize gives them.",
    constraints=(
        "planes is i8 [X, R, 1, K] or [X, R, 2, K], with scale f32 [X, R, K / 32] and total i32 [X, R, K / 32] as "
        "block_quantize gives them",
        *_OPERANDS,
    ),
    shape_rule=_infer_expert_block_product,
    eager_rule=_eager_expert_block_product,
)


def _infer_packed_expert_linear(
    x: TensorSpec, expert: TensorSpec, weight: TensorSpec, encoding: Encoding, dtype: DType, activations: Activations
) -> Specs:
    fits = x.ndim == 3 and x.dtype.is_floating and x.dtype is not f64
    require(fits, "packed_expert_linear_c1", f"x is {x!r}")
    _require_operands("packed_expert_linear", x, expert, weight, encoding, dtype)
    require(activations in ACTIVATION_BITS, "packed_expert_linear_c5", f"activations is {activations!r}")
    return (TensorSpec((expert.shape[0], x.shape[1], weight.shape[1]), dtype),)


def _eager_packed_expert_linear(
    x: Array, expert: Array, w: Array, encoding: Encoding, dtype: DType, activations: Activations
) -> Array:
    return _product(activations_of(x, activations), expert, w, encoding, dtype)


_PACKED_EXPERT_LINEAR = define_op(
    "packed_expert_linear",
    attributes=("encoding", "dtype", "activations"),
    summary="x[g // (G / X)] @ weight[expert[g]].T for each of G groups. Of the packed weights [E, N, K] of E experts "
    "only those of the chosen ones are read; experts outside are clamped into range. Sums, roundings and the lowered "
    "form are those of packed_linear.",
    constraints=("x is f32, f16 or bf16 [X, R, K]", *_OPERANDS, "activations is exact or q8"),
    shape_rule=_infer_packed_expert_linear,
    eager_rule=_eager_packed_expert_linear,
)


class PackedExpertOps(PackedOps):
    """Ops on block-quantised weights of stacked experts."""

    __slots__ = ()

    def expert_block_product(
        self,
        blocks: tuple[Tensor, Tensor, Tensor],
        expert: Tensor,
        weight: Tensor,
        encoding: Encoding,
        dtype: DType | str = "f32",
    ) -> Tensor:
        """Like ``packed_expert_linear``, for x [X, R, K] in blocks as ``block_quantize`` returns it."""
        return self._apply(_EXPERT_BLOCK_PRODUCT, (*blocks, expert, weight), (encoding, as_dtype(dtype)))

    @checked_choices
    def packed_expert_linear(
        self,
        x: Tensor,
        expert: Tensor,
        weight: Tensor,
        encoding: Encoding,
        dtype: DType | str | None = None,
        activations: Activations = "exact",
    ) -> Tensor:
        """Multiplies groups of rows with the weights of the experts that they chose: [G, R, N].

        Only the chosen experts' bytes are read.

        Args:
            x: floating, of 16 or 32 bits, [X, R, K]: R rows for each group, or for each G / X consecutive groups.
            expert: i32 [G]: expert of each group, clamped to the valid range.
            weight: packed: i8 [E, N, K / block * block_bytes].
            encoding: of the weight.
            dtype: of the result; x's if None.
            activations: as for ``packed_linear``.
        """
        attributes = encoding, as_dtype(x.dtype if dtype is None else dtype), activations
        return self._ctx.composite("packed_expert_linear", self._packed_expert_linear, (x, expert, weight), attributes)

    def _packed_expert_linear(
        self, x: Tensor, expert: Tensor, weight: Tensor, encoding: Encoding, dtype: DType, activations: Activations
    ) -> Tensor:
        return self._apply(_PACKED_EXPERT_LINEAR, (x, expert, weight), (encoding, dtype, activations))
