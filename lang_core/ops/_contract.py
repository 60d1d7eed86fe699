"""Sums of products: dot_general and convolution."""

import functools
import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from lang_core._dtypes import DType, as_dtype, bool_, f32
from lang_core._spec import TensorSpec
from lang_core._tensor import Tensor
from lang_core.ops._elementwise import ArithmeticOps
from lang_core.ops._op import Array, Specs, define_op, positive_axis, require, require_axes
from lang_core.ops._reduce import LONG_SUM

Axes = tuple[int, ...]
_BLOCK: Final = 1 << 14


def _free(ndim: int, *used: Axes) -> Axes:
    taken = {axis for axes in used for axis in axes}
    return tuple(axis for axis in range(ndim) if axis not in taken)


def _infer_dot_general(
    x: TensorSpec, y: TensorSpec, x_contract: Axes, y_contract: Axes, x_batch: Axes, y_batch: Axes, dtype: DType
) -> Specs:
    require_axes(x_contract + x_batch, x.ndim, "dot_general_c1")
    require_axes(y_contract + y_batch, y.ndim, "dot_general_c1")
    for what, a, b in (("contracted", x_contract, y_contract), ("batch", x_batch, y_batch)):
        same = len(a) == len(b) and all(x.shape[i] == y.shape[j] for i, j in zip(a, b, strict=True))
        require(same, "dot_general_c2", f"{what} axes {a} of {x.shape} and {b} of {y.shape} do not match")
    require(x.dtype is y.dtype, "dot_general_c3", f"dtypes {x.dtype} and {y.dtype} differ: cast one of them")
    require(x.dtype is not bool_, "dot_general_c4", "the dtype is bool")
    wider = dtype.is_floating == x.dtype.is_floating and dtype.itemsize > x.dtype.itemsize
    require(dtype is x.dtype or wider, "dot_general_c5", f"{x.dtype} products cannot give {dtype}")
    shape = [x.shape[i] for i in x_batch + _free(x.ndim, x_contract, x_batch)]
    shape += [y.shape[i] for i in _free(y.ndim, y_contract, y_batch)]
    return (TensorSpec(tuple(shape), dtype),)


@functools.lru_cache(maxsize=1024)
def _positive(x_ndim: int, y_ndim: int, contract: Any, batch: Any) -> tuple[Axes, ...]:
    """Returns the axes counted from the start: x's and y's contracted ones, x's and y's batch ones."""
    return tuple(
        tuple(positive_axis(axis, ndim) for axis in axes)
        for pair in (contract, batch)
        for ndim, axes in zip((x_ndim, y_ndim), pair, strict=True)
    )


class _Plan(NamedTuple):
    """Transpositions and reshapes that turn a dot_general into one numpy.matmul; None if none is needed."""

    x_order: Axes | None
    x_shape: Axes | None
    y_order: Axes | None
    y_shape: Axes | None
    result: Axes | None


@functools.lru_cache(maxsize=1024)
def _plan(x: Axes, y: Axes, x_contract: Axes, y_contract: Axes, x_batch: Axes, y_batch: Axes) -> _Plan:
    """Plans a dot_general of operands of shapes x and y."""
    x_free, y_free = _free(len(x), x_contract, x_batch), _free(len(y), y_contract, y_batch)
    batch = tuple(x[i] for i in x_batch)
    m, n = math.prod(x[i] for i in x_free), math.prod(y[i] for i in y_free)
    k = math.prod(x[i] for i in x_contract)
    # y is brought into [N, K] too: its stored order as a rule, and BLAS reads it as well as [K, N].
    x_order, y_order = x_batch + x_free + x_contract, y_batch + y_free + y_contract
    result = batch + tuple(x[i] for i in x_free) + tuple(y[i] for i in y_free)
    return _Plan(
        _unless_same(x_order, tuple(range(len(x)))),
        _unless_same((*batch, m, k), tuple(x[i] for i in x_order)),
        _unless_same(y_order, tuple(range(len(y)))),
        _unless_same((*batch, n, k), tuple(y[i] for i in y_order)),
        _unless_same(result, (*batch, m, n)),
    )


def _unless_same(wanted: Axes, present: Axes) -> Axes | None:
    return None if wanted == present else wanted


def _eager_dot_general(
    x: Array, y: Array, x_contract: Axes, y_contract: Axes, x_batch: Axes, y_batch: Axes, dtype: DType
) -> Array:
    x_order, x_shape, y_order, y_shape, shape = _plan(x.shape, y.shape, x_contract, y_contract, x_batch, y_batch)
    work = _work_dtype(x.dtype, dtype)
    left = _arranged(x, x_order, x_shape, work)
    right = _arranged(y, y_order, y_shape, work)
    right = right.swapaxes(-1, -2)
    product = np.matmul(left, right) if left.shape[-1] <= LONG_SUM else _long_product(left, right)
    if shape is not None:
        product = product.reshape(shape)
    return product if product.dtype is dtype.numpy else product.astype(dtype.numpy, copy=False)


def _long_product(left: Array, right: Array) -> Array:
    """Multiplies matrices; sums of blocks are added, for BLAS may add one after the other."""
    if left.dtype.kind != "f":
        return np.matmul(left, right)
    parts = range(0, left.shape[-1], _BLOCK)
    return np.sum([np.matmul(left[..., i : i + _BLOCK], right[..., i : i + _BLOCK, :]) for i in parts], axis=0)


def _arranged(x: Array, order: Axes | None, shape: Axes | None, work: Any) -> Array:
    if order is not None:
        x = x.transpose(order)
    if shape is not None:
        x = x.reshape(shape)
    return x if x.dtype is work else x.astype(work, copy=False)


def _work_dtype(operand: Any, result: DType) -> Any:
    if operand is f32.numpy and result is f32:
        return operand
    if result.is_floating:
        return f32.numpy if operand.itemsize == 2 and result.itemsize <= 4 else result.numpy
    return result.numpy


_DOT_GENERAL = define_op(
    "dot_general",
    attributes=("x_contract", "y_contract", "x_batch", "y_batch", "dtype"),
    summary="Sums of products over contracted axes, per batch; result axes: batch, x's free, y's free. "
    "f16 and bf16 accumulate in f32.",
    constraints=(
        "the axes are the operands' own, each at most once",
        "contracted and batch axes pair up with equal dimensions",
        "the dtypes are equal",
        "the dtype is a number",
        "the result's dtype is the operands' or a wider one of the same kind",
    ),
    shape_rule=_infer_dot_general,
    eager_rule=_eager_dot_general,
)

_CONV_LAYOUT: Final = "x is [B, spatial.., C], kernel [spatial.., C / groups, O], with 1 to 3 spatial axes"


def _infer_conv(
    x: TensorSpec,
    kernel: TensorSpec,
    strides: Axes,
    padding: tuple[tuple[int, int], ...],
    dilation: Axes,
    groups: int,
) -> Specs:
    spatial = x.ndim - 2
    require(1 <= spatial <= 3 and kernel.ndim == x.ndim, "conv_c1", f"x is {x!r}, kernel {kernel!r}")
    require(x.dtype is kernel.dtype and x.dtype.is_floating, "conv_c2", f"dtypes {x.dtype} and {kernel.dtype}")
    channels, outputs = x.shape[-1], kernel.shape[-1]
    fits = groups > 0 and kernel.shape[-2] * groups == channels and outputs % groups == 0
    require(fits, "conv_c3", f"{channels} channels, {groups} groups, kernel {kernel.shape}")
    per_axis = len(strides) == len(padding) == len(dilation) == spatial and min(*strides, *dilation) > 0
    require(per_axis and min(min(p) for p in padding) >= 0, "conv_c4", f"{strides}, {padding}, {dilation}")
    shape = [x.shape[0]]
    for i in range(spatial):
        room = x.shape[i + 1] + sum(padding[i]) - dilation[i] * (kernel.shape[i] - 1) - 1
        shape.append(max(room // strides[i] + 1, 0))
    return (TensorSpec((*shape, outputs), x.dtype),)


def _eager_conv(
    x: Array, kernel: Array, strides: Axes, padding: tuple[tuple[int, int], ...], dilation: Axes, groups: int
) -> Array:
    work = as_dtype(x.dtype).accumulation.numpy
    padded = np.pad(x.astype(work), ((0, 0), *padding, (0, 0)))
    out = tuple(
        max((size - d * (taps - 1) - 1) // s + 1, 0)
        for size, taps, s, d in zip(padded.shape[1:-1], kernel.shape[:-2], strides, dilation, strict=True)
    )
    positions, (per_group, outputs) = x.shape[0] * math.prod(out), kernel.shape[-2:]
    result = np.zeros((groups, positions, outputs // groups), work)
    for tap in np.ndindex(kernel.shape[:-2]):  # one matrix product per kernel position
        steps = [slice(i * d, i * d + n * s, s) for i, d, n, s in zip(tap, dilation, out, strides, strict=True)]
        left = padded[(slice(None), *steps)].reshape(positions, groups, per_group)
        right = kernel[tap].astype(work).reshape(per_group, groups, outputs // groups)
        result += np.matmul(left.swapaxes(0, 1), right.swapaxes(0, 1))
    return result.swapaxes(0, 1).reshape(x.shape[0], *out, outputs).astype(x.dtype)


_CONV = define_op(
    "conv",
    attributes=("strides", "padding", "dilation", "groups"),
    summary="Cross-correlation (what deep learning calls convolution); f16 and bf16 accumulate in f32.",
    constraints=(
        _CONV_LAYOUT,
        "the dtypes are equal and floating",
        "C is groups times the kernel's channels, and groups divides O",
        "one stride above 0, padding (low, high) not below 0, and dilation above 0 per spatial axis",
    ),
    shape_rule=_infer_conv,
    eager_rule=_eager_conv,
)


class ContractionOps(ArithmeticOps):
    """Sums of products."""

    __slots__ = ()

    def dot_general(
        self,
        x: Tensor,
        y: Tensor,
        contract: tuple[Sequence[int], Sequence[int]],
        batch: tuple[Sequence[int], Sequence[int]] = ((), ()),
        dtype: DType | str | None = None,
    ) -> Tensor:
        """Sums products over the ``contract`` axes (of x, of y), for each index of the ``batch`` axes.

        Args:
            x: any shape.
            y: any shape, x's dtype.
            contract: axes of x and of y, paired.
            batch: axes of x and of y, paired.
            dtype: of the result; x's if None. i8 products usually want i32.

        Returns:
            [batch.., x's free axes.., y's free axes..].
        """
        try:
            axes = _positive(x.ndim, y.ndim, contract, batch)
        except TypeError:  # lists cannot be looked up
            axes = _positive(x.ndim, y.ndim, tuple(map(tuple, contract)), tuple(map(tuple, batch)))
        if dtype is None:
            wanted = x.spec.dtype if isinstance(x, Tensor) else as_dtype(x.dtype)
        else:
            wanted = as_dtype(dtype)
        return self._ctx.apply(_DOT_GENERAL, (x, y), (*axes, wanted))[0]

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Returns ``x [.., K] @ weight [N, K].T + bias [N]``: [.., N]. The weight is output-major."""
        return self._ctx.composite("linear", self._linear, (x, weight, bias))

    def _linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        axes = (x.ndim - 1,), (1,), (), ()
        product = self._apply(_DOT_GENERAL, (x, weight), (*axes, as_dtype(x.dtype)))
        return product if bias is None else self.add(product, bias)

    def conv(
        self,
        x: Tensor,
        kernel: Tensor,
        strides: Sequence[int] | None = None,
        padding: Sequence[tuple[int, int]] | None = None,
        dilation: Sequence[int] | None = None,
        groups: int = 1,
    ) -> Tensor:
        """Cross-correlates x [B, spatial.., C] with kernel [spatial.., C / groups, O]: [B, spatial'.., O].

        A causal depthwise convolution of width W over [B, T, C] has groups = C, kernel [W, 1, C] and
        padding ((W - 1, 0),).
        """
        spatial = x.ndim - 2
        ones = (1,) * spatial
        pads = ((0, 0),) * spatial if padding is None else tuple((low, high) for low, high in padding)
        return self._apply(_CONV, (x, kernel), (tuple(strides or ones), pads, tuple(dilation or ones), groups))
