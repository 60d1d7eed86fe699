"""Ops that read or write at positions known only at run time. Positions are i32 or i64."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from lang_core._dtypes import as_dtype, bool_, i32, i64
from lang_core._spec import TensorSpec
from lang_core._tensor import Tensor
from lang_core.ops._base import Operand, OpsBase
from lang_core.ops._op import Array, Specs, define_op, positive_axis, require, require_axis

_INDEX_DTYPES: Final = (i32, i64)
_STARTS: Final = "one rank-0 start per axis, all i32 or all i64"


def _require_starts(starts: tuple[TensorSpec, ...], ndim: int, label: str) -> None:
    require(len(starts) == ndim, label, f"{len(starts)} starts for {ndim} axes")
    for start in starts:
        good = start.shape == () and start.dtype in _INDEX_DTYPES and start.dtype is starts[0].dtype
        require(good, label, f"a start is {start!r}")


def _clamped(starts: Sequence[Array], room: Sequence[int]) -> tuple[int, ...]:
    return tuple(min(max(int(start), 0), most) for start, most in zip(starts, room, strict=True))


def _infer_dynamic_slice(x: TensorSpec, *starts_and_sizes: Any) -> Specs:
    *starts, sizes = starts_and_sizes
    _require_starts(tuple(starts), x.ndim, "dynamic_slice_c1")
    fits = len(sizes) == x.ndim and all(0 <= size <= dim for size, dim in zip(sizes, x.shape, strict=True))
    require(fits, "dynamic_slice_c2", f"sizes {sizes} do not fit into shape {x.shape}")
    return (TensorSpec(sizes, x.dtype),)


def _eager_dynamic_slice(x: Array, *starts_and_sizes: Any) -> Array:
    *starts, sizes = starts_and_sizes
    begin = _clamped(starts, [dim - size for dim, size in zip(x.shape, sizes, strict=True)])
    return x[tuple(slice(b, b + size) for b, size in zip(begin, sizes, strict=True))]


_DYNAMIC_SLICE = define_op(
    "dynamic_slice",
    attributes=("sizes",),
    summary="The part of x of given sizes at run-time starts, which are clamped so that the part lies inside x.",
    constraints=(_STARTS, "sizes fit into x's shape"),
    shape_rule=_infer_dynamic_slice,
    eager_rule=_eager_dynamic_slice,
    only_moves=True,
)


def _infer_dynamic_update_slice(x: TensorSpec, update: TensorSpec, *starts: TensorSpec) -> Specs:
    _require_starts(starts, x.ndim, "dynamic_update_slice_c1")
    fits = update.ndim == x.ndim and all(a <= b for a, b in zip(update.shape, x.shape, strict=True))
    require(fits, "dynamic_update_slice_c2", f"{update.shape} does not fit into {x.shape}")
    require(update.dtype is x.dtype, "dynamic_update_slice_c3", f"dtypes {update.dtype} and {x.dtype} differ")
    return (x,)


def _eager_dynamic_update_slice(x: Array, update: Array, *starts: Array) -> Array:
    begin = _clamped(starts, [dim - size for dim, size in zip(x.shape, update.shape, strict=True)])
    result = x.copy()  # the op is functional: x stays as it is
    result[tuple(slice(b, b + size) for b, size in zip(begin, update.shape, strict=True))] = update
    return result


_DYNAMIC_UPDATE_SLICE = define_op(
    "dynamic_update_slice",
    summary="x with update written at run-time starts, which are clamped so that it lies inside x.",
    constraints=(_STARTS, "update fits into x", "the dtypes are equal"),
    shape_rule=_infer_dynamic_update_slice,
    eager_rule=_eager_dynamic_update_slice,
    only_moves=True,
)


def _infer_take(x: TensorSpec, indices: TensorSpec, axis: int) -> Specs:
    require_axis(axis, x.ndim, "take_c1")
    require(indices.dtype in _INDEX_DTYPES, "take_c2", f"indices are {indices.dtype}")
    require(x.shape[axis] > 0 or indices.size == 0, "take_c3", f"{x.shape} has no element along axis {axis}")
    return (TensorSpec(x.shape[:axis] + indices.shape + x.shape[axis + 1 :], x.dtype),)


_TAKE = define_op(
    "take",
    attributes=("axis",),
    summary="x's slices along axis at indices of any shape, which takes the place of axis. Indices are clamped.",
    constraints=("axis is one of x's", "indices are i32 or i64", "the dimension is not 0"),
    shape_rule=_infer_take,
    eager_rule=lambda x, indices, axis: np.take(x, indices, axis, mode="clip"),
    only_moves=True,
)


def _infer_gather(x: TensorSpec, indices: TensorSpec, axis: int) -> Specs:
    require_axis(axis, x.ndim, "gather_c1")
    require(indices.dtype in _INDEX_DTYPES, "gather_c2", f"indices are {indices.dtype}")
    fits = indices.ndim == x.ndim and all(
        a == b for i, (a, b) in enumerate(zip(indices.shape, x.shape, strict=True)) if i != axis
    )
    require(fits, "gather_c3", f"indices {indices.shape} and x {x.shape} differ beside axis {axis}")
    require(x.shape[axis] > 0 or indices.size == 0, "gather_c4", f"{x.shape} has no element along axis {axis}")
    return (TensorSpec(indices.shape, x.dtype),)


def _eager_gather(x: Array, indices: Array, axis: int) -> Array:
    return np.take_along_axis(x, np.clip(indices, 0, max(x.shape[axis] - 1, 0)), axis)


_GATHER = define_op(
    "gather",
    attributes=("axis",),
    summary="result[.., i, ..] = x[.., indices[.., i, ..], ..] along axis. Indices are clamped.",
    constraints=(
        "axis is one of x's",
        "indices are i32 or i64",
        "indices has x's shape beside axis",
        "the dimension is not 0",
    ),
    shape_rule=_infer_gather,
    eager_rule=_eager_gather,
    only_moves=True,
)

SCATTER_REDUCTIONS: Final = {"set": None, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _infer_scatter(x: TensorSpec, indices: TensorSpec, updates: TensorSpec, axis: int, reduction: str) -> Specs:
    require_axis(axis, x.ndim, "scatter_c1")
    require(indices.dtype in _INDEX_DTYPES, "scatter_c2", f"indices are {indices.dtype}")
    fits = indices.ndim == x.ndim and all(
        a == b for i, (a, b) in enumerate(zip(indices.shape, x.shape, strict=True)) if i != axis
    )
    require(fits, "scatter_c3", f"indices {indices.shape} and x {x.shape} differ beside axis {axis}")
    same = updates.shape == indices.shape and updates.dtype is x.dtype
    require(same, "scatter_c4", f"updates are {updates!r} for indices {indices.shape} and {x.dtype}")
    require(reduction in SCATTER_REDUCTIONS, "scatter_c5", f"reduction {reduction!r}")
    require(x.dtype is not bool_ or reduction == "set", "scatter_c6", f"{reduction} of bool")
    return (x,)


def _eager_scatter(x: Array, indices: Array, updates: Array, axis: int, reduction: str) -> Array:
    result = x.copy()
    inside = (indices >= 0) & (indices < x.shape[axis])
    places = list(np.nonzero(inside))
    places[axis] = indices[inside]
    ufunc = SCATTER_REDUCTIONS[reduction]
    if ufunc is None:
        result[tuple(places)] = updates[inside]
    else:
        ufunc.at(result, tuple(places), updates[inside])
    return result


_SCATTER = define_op(
    "scatter",
    attributes=("axis", "reduction"),
    summary="x with x[.., indices[.., i, ..], ..] set to (or combined with) updates[.., i, ..] along axis. "
    "Updates outside x are dropped; with 'set', one of several updates of one element wins, unspecified which.",
    constraints=(
        "axis is one of x's",
        "indices are i32 or i64",
        "indices has x's shape beside axis",
        "updates has the shape of indices and x's dtype",
        "reduction is set, add, mul, max or min",
        "bool can only be set",
    ),
    shape_rule=_infer_scatter,
    eager_rule=_eager_scatter,
)


def _infer_put(x: TensorSpec, indices: TensorSpec, updates: TensorSpec, *where_and_axis: Any) -> Specs:
    *where, axis = where_and_axis
    require_axis(axis, x.ndim, "put_c1")
    require(axis > 0, "put_c1", "axis 0 is that of the rows")
    rows = indices.dtype in _INDEX_DTYPES and indices.ndim == 2 and indices.shape[0] == x.shape[0]
    require(rows, "put_c2", f"indices are {indices!r} for {x.shape[0]} rows")
    wanted = (*x.shape[:axis], indices.shape[1], *x.shape[axis + 1 :])
    fits = updates.shape == wanted and updates.dtype is x.dtype
    require(fits, "put_c3", f"updates are {updates!r} where {x.dtype}{list(wanted)} is wanted")
    require(indices.shape[1] <= x.shape[axis], "put_c4", f"{indices.shape[1]} places in {x.shape[axis]}")
    chosen = all(spec.dtype is bool_ and spec.shape == indices.shape for spec in where)
    require(chosen, "put_c5", f"where is {where} for indices {indices.shape}")
    return (x,)


def _eager_put(x: Array, indices: Array, updates: Array, *where_and_axis: Any) -> Array:
    *where, axis = where_and_axis
    result = x.copy()
    rows = np.broadcast_to(np.arange(x.shape[0])[:, None], indices.shape)
    places = np.clip(indices, 0, max(x.shape[axis] - 1, 0))
    made = where[0] if where else np.ones(indices.shape, np.bool_)
    np.moveaxis(result, axis, 1)[rows[made], places[made]] = np.moveaxis(updates, axis, 1)[made]
    return result


_PUT = define_op(
    "put",
    attributes=("axis",),
    summary="x with x[b, .., indices[b, t], ..] set to updates[b, .., t, ..] along axis, for every b of the first "
    "axis, if where[b, t] holds; always without where. Indices are clamped; those of one b are to be distinct then, "
    "of updates that are not made, too.",
    constraints=(
        "axis is one of x's, and not the first",
        "indices is i32 or i64 [B, T], B being x's first dimension",
        "updates has x's shape with T along axis, and x's dtype",
        "T is not more than x has along axis",
        "where is bool [B, T]",
    ),
    shape_rule=_infer_put,
    eager_rule=_eager_put,
)


class IndexingOps(OpsBase):
    """Ops that read or write at run-time positions."""

    __slots__ = ()

    def dynamic_slice(self, x: Tensor, starts: Sequence[Operand], sizes: Sequence[int]) -> Tensor:
        """Returns the part of x of these sizes at ``starts`` (one rank-0 tensor or int per axis), clamped into x."""
        return self._apply(_DYNAMIC_SLICE, (x, *self._starts(starts)), (tuple(sizes),))

    def dynamic_update_slice(self, x: Tensor, update: Tensor, starts: Sequence[Operand]) -> Tensor:
        """Returns x with ``update`` written at ``starts`` (one rank-0 tensor or int per axis), clamped into x."""
        return self._apply(_DYNAMIC_UPDATE_SLICE, (x, update, *self._starts(starts)))

    def _starts(self, starts: Sequence[Operand]) -> tuple[Any, ...]:
        dtype = next((as_dtype(s.dtype) for s in starts if isinstance(s, Tensor | np.ndarray | np.generic)), i32)
        return tuple(self._ctx.constant(s, dtype) if isinstance(s, int) else s for s in starts)

    def take(self, x: Tensor, indices: Operand, axis: int = 0) -> Tensor:
        """Returns x's slices along ``axis`` at ``indices`` (any shape), which takes the place of ``axis``."""
        return self._apply(_TAKE, (x, indices), (positive_axis(axis, x.ndim),))

    def embedding(self, table: Tensor, token_ids: Operand) -> Tensor:
        """Returns rows of ``table`` [V, D] at ``token_ids`` [...]: [..., D]."""
        return self.take(table, token_ids, 0)

    def gather(self, x: Tensor, indices: Operand, axis: int) -> Tensor:
        """Returns ``result[.., i, ..] = x[.., indices[.., i, ..], ..]`` along ``axis``, as numpy.take_along_axis."""
        return self._apply(_GATHER, (x, indices), (positive_axis(axis, x.ndim),))

    def scatter(self, x: Tensor, indices: Operand, updates: Tensor, axis: int, reduction: str = "set") -> Tensor:
        """Returns x with its elements at ``indices`` along ``axis`` set to, or combined with, ``updates``."""
        return self._apply(_SCATTER, (x, indices, updates), (positive_axis(axis, x.ndim), reduction))

    def put(self, x: Tensor, indices: Operand, updates: Tensor, axis: int, where: Operand | None = None) -> Tensor:
        """Returns x with ``x[b, .., indices[b, t], ..] = updates[b, .., t, ..]`` along ``axis``, if ``where[b, t]``."""
        chosen = () if where is None else (where,)
        return self._apply(_PUT, (x, indices, updates, *chosen), (positive_axis(axis, x.ndim),))
