"""Reductions, running sums and order."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from lang_core._choices import flag
from lang_core._dtypes import as_dtype, bool_, i32
from lang_core._spec import TensorSpec
from lang_core._tensor import Tensor
from lang_core.ops._base import OpsBase
from lang_core.ops._op import Array, Op, Specs, define_op, positive_axis, require, require_axes, require_axis

# Above the widths of models: rounding of sums in their order counts from here on, relative to the result.
LONG_SUM: Final = 1 << 16
"""Largest number of floating terms that are added one after the other; longer sums are sums of sums."""
_AXES: Final = "axes are x's, each at most once"


def _reduced(x: TensorSpec, axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    if keepdims:
        return tuple(1 if axis in axes else dim for axis, dim in enumerate(x.shape))
    return tuple(dim for axis, dim in enumerate(x.shape) if axis not in axes)


def _reduction(name: str, numpy: Callable[..., Any], wants_bool: bool, summary: str) -> Op:
    def rule(x: TensorSpec, axes: tuple[int, ...], keepdims: bool) -> Specs:
        require_axes(axes, x.ndim, f"{name}_c1")
        require((x.dtype is bool_) == wants_bool, f"{name}_c2", f"the dtype is {x.dtype}")
        if name in ("max", "min"):
            require(all(x.shape[axis] for axis in axes), f"{name}_c3", f"{x.shape} has no element along {axes}")
        return (TensorSpec(_reduced(x, axes, keepdims), x.dtype),)

    constraints = (_AXES, "the dtype is bool" if wants_bool else "the dtype is a number")
    if name in ("max", "min"):
        constraints += ("no reduced dimension is 0",)
    return define_op(
        name,
        attributes=("axes", "keepdims"),
        summary=summary,
        constraints=constraints,
        shape_rule=rule,
        eager_rule=numpy,
    )


def _eager_sum(x: Array, axes: tuple[int, ...], keepdims: bool) -> Any:
    """Sums in f32 at least; long sums in f64, for NumPy adds one after the other along all axes but the last."""
    if x.size > LONG_SUM and as_dtype(x.dtype).is_floating and math.prod(x.shape[axis] for axis in axes) > LONG_SUM:
        return np.add.reduce(x, axis=axes, keepdims=keepdims, dtype=np.float64).astype(x.dtype)
    if x.dtype.itemsize == 2:
        return np.add.reduce(x, axis=axes, keepdims=keepdims, dtype=np.float32).astype(x.dtype)
    return np.add.reduce(x, axis=axes, keepdims=keepdims, dtype=x.dtype)


def _eager_prod(x: Array, axes: tuple[int, ...], keepdims: bool) -> Any:
    dtype = as_dtype(x.dtype)
    wide = x.astype(dtype.accumulation.numpy, copy=False)
    result = np.multiply.reduce(wide, axis=axes, keepdims=True, dtype=wide.dtype)
    if dtype.is_floating and np.isnan(result).any():
        # A product that overflows before a 0 comes is NaN: of finite numbers with a 0 it is 0 in any order.
        size = np.abs(wide)
        vanishes = (size.min(axis=axes, keepdims=True) == 0) & (size.max(axis=axes, keepdims=True) < np.inf)
        inside = np.multiply.reduce(np.clip(wide, -1, 1), axis=axes, keepdims=True, dtype=wide.dtype)
        result = np.where(vanishes, inside, result)
    return (result if keepdims else result.squeeze(axes)).astype(x.dtype)


def _plain(ufunc: np.ufunc) -> Callable[..., Any]:
    return lambda x, axes, keepdims: ufunc.reduce(x, axis=axes, keepdims=keepdims)


SUM = _reduction("sum", _eager_sum, False, "The sum; f16 and bf16 accumulate in f32.")
PROD = _reduction(
    "prod", _eager_prod, False, "The product; f16 and bf16 accumulate in f32; of finite numbers with a 0 it is 0."
)
MAX = _reduction("max", _plain(np.maximum), False, "The largest element; NaN if any is NaN.")
MIN = _reduction("min", _plain(np.minimum), False, "The smallest element; NaN if any is NaN.")
ANY = _reduction("any", _plain(np.logical_or), True, "True if any element holds.")
ALL = _reduction("all", _plain(np.logical_and), True, "True if every element holds.")


def _arg_reduction(name: str, numpy: Callable[..., Any], which: str) -> Op:
    def rule(x: TensorSpec, axis: int, keepdims: bool) -> Specs:
        require_axis(axis, x.ndim, f"{name}_c1")
        require(x.dtype is not bool_, f"{name}_c2", "the dtype is bool")
        require(x.shape[axis] > 0, f"{name}_c3", f"{x.shape} has no element along axis {axis}")
        return (TensorSpec(_reduced(x, (axis,), keepdims), i32),)

    def eager(x: Array, axis: int, keepdims: bool) -> Any:
        x = x.astype(as_dtype(x.dtype).accumulation.numpy, copy=False)  # NumPy's argmax knows no bfloat16 NaN
        return numpy(x, axis=axis, keepdims=keepdims).astype(np.int32)

    return define_op(
        name,
        attributes=("axis", "keepdims"),
        summary=f"The i32 index of the {which} element; the first of equal ones; the first NaN if there is one.",
        constraints=("axis is one of x's", "the dtype is a number", "the dimension is not 0"),
        shape_rule=rule,
        eager_rule=eager,
    )


ARGMAX = _arg_reduction("argmax", np.argmax, "largest")
ARGMIN = _arg_reduction("argmin", np.argmin, "smallest")


def _infer_cumsum(x: TensorSpec, axis: int) -> Specs:
    require_axis(axis, x.ndim, "cumsum_c1")
    require(x.dtype is not bool_, "cumsum_c2", "the dtype is bool")
    return (x,)


def _eager_cumsum(x: Array, axis: int) -> Array:
    if x.shape[axis] > LONG_SUM and as_dtype(x.dtype).is_floating:
        return np.cumsum(x, axis=axis, dtype=np.float64).astype(x.dtype)
    return np.cumsum(x, axis=axis, dtype=as_dtype(x.dtype).accumulation.numpy).astype(x.dtype)


_CUMSUM = define_op(
    "cumsum",
    attributes=("axis",),
    summary="The sum of the elements up to and including each one; f16 and bf16 accumulate in f32.",
    constraints=("axis is one of x's", "the dtype is a number"),
    shape_rule=_infer_cumsum,
    eager_rule=_eager_cumsum,
)


def _infer_sort(x: TensorSpec, axis: int, descending: bool) -> Specs:
    require_axis(axis, x.ndim, "sort_c1")
    require(x.dtype is not bool_, "sort_c2", "the dtype is bool")
    return x, TensorSpec(x.shape, i32)


def _eager_sort(x: Array, axis: int, descending: bool) -> tuple[Array, Array]:
    keys = x.astype(as_dtype(x.dtype).accumulation.numpy, copy=False)
    if descending:
        # A stable descending order is the ascending one of the reversed elements, read backwards.
        order = x.shape[axis] - 1 - np.flip(np.argsort(np.flip(keys, axis), axis=axis, kind="stable"), axis)
    else:
        order = np.argsort(keys, axis=axis, kind="stable")
    return np.take_along_axis(x, order, axis), order.astype(np.int32)


_SORT = define_op(
    "sort",
    attributes=("axis", "descending"),
    summary="x sorted along an axis, stable, NaN as the largest; and the i32 indices that sort it.",
    constraints=("axis is one of x's", "the dtype is a number"),
    shape_rule=_infer_sort,
    eager_rule=_eager_sort,
)


class ReductionOps(OpsBase):
    """Reductions, running sums and order."""

    __slots__ = ()

    def _reduce(self, op: Op, x: Tensor, axis: int | Sequence[int] | None, keepdims: bool) -> Tensor:
        axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
        return self._apply(
            op, (x,), (tuple(sorted(positive_axis(a, x.ndim) for a in axes)), flag(keepdims, "keepdims"))
        )

    def sum(self, x: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """Returns the sum over ``axis`` (all axes if None), in x's dtype."""
        return self._reduce(SUM, x, axis, keepdims)

    def prod(self, x: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """Returns the product over ``axis`` (all axes if None), in x's dtype."""
        return self._reduce(PROD, x, axis, keepdims)

    def max(self, x: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """Returns the largest element over ``axis``; NaN if any is NaN."""
        return self._reduce(MAX, x, axis, keepdims)

    def min(self, x: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """Returns the smallest element over ``axis``; NaN if any is NaN."""
        return self._reduce(MIN, x, axis, keepdims)

    def any(self, x: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """Returns whether any element (bool) over ``axis`` holds."""
        return self._reduce(ANY, x, axis, keepdims)

    def all(self, x: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """Returns whether every element (bool) over ``axis`` holds."""
        return self._reduce(ALL, x, axis, keepdims)

    def argmax(self, x: Tensor, axis: int, keepdims: bool = False) -> Tensor:
        """Returns the i32 index of the largest element along ``axis``: the first of equal ones, the first NaN."""
        return self._apply(ARGMAX, (x,), (positive_axis(axis, x.ndim), flag(keepdims, "keepdims")))

    def argmin(self, x: Tensor, axis: int, keepdims: bool = False) -> Tensor:
        """Returns the i32 index of the smallest element along ``axis``: the first of equal ones, the first NaN."""
        return self._apply(ARGMIN, (x,), (positive_axis(axis, x.ndim), flag(keepdims, "keepdims")))

    def cumsum(self, x: Tensor, axis: int) -> Tensor:
        """Returns the sum of the elements up to and including each one along ``axis``."""
        return self._apply(_CUMSUM, (x,), (positive_axis(axis, x.ndim),))

    def sort(self, x: Tensor, axis: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
        """Returns x sorted along ``axis`` (stable, NaN as the largest), and the i32 indices that sort it."""
        values, indices = self._ctx.apply(
            _SORT, (x,), (positive_axis(axis, x.ndim), flag(descending, "sort: descending"))
        )
        return values, indices
