"""Ops that move elements without computing, and ops that make tensors without operands."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lang_core._dtypes import DType, as_dtype, bool_
from lang_core._errors import OpError
from lang_core._spec import TensorSpec
from lang_core._tensor import Tensor
from lang_core.ops._base import NUMBERS, Operand, OpsBase
from lang_core.ops._op import Array, Specs, define_op, positive_axis, require, require_axes, require_axis


def _infer_broadcast(x: TensorSpec, shape: tuple[int, ...]) -> Specs:
    lead = len(shape) - x.ndim
    fits = lead >= 0 and min(shape, default=0) >= 0
    fits = fits and all(a in (1, b) for a, b in zip(x.shape, shape[lead:], strict=True))
    require(fits, "broadcast_c1", f"{x.shape} does not broadcast to {shape}")
    return (TensorSpec(shape, x.dtype),)


_BROADCAST = define_op(
    "broadcast",
    attributes=("shape",),
    summary="x repeated to a shape, aligned at the right.",
    constraints=("x's shape broadcasts to shape by NumPy's rules",),
    shape_rule=_infer_broadcast,
    eager_rule=np.broadcast_to,
    only_moves=True,
)


def _infer_reshape(x: TensorSpec, shape: tuple[int, ...]) -> Specs:
    same = math.prod(shape) == x.size and min(shape, default=0) >= 0
    require(same, "reshape_c1", f"{x.size} elements do not fill shape {shape}")
    return (TensorSpec(shape, x.dtype),)


_RESHAPE = define_op(
    "reshape",
    attributes=("shape",),
    summary="The same elements, in row-major order, under another shape.",
    constraints=("the number of elements stays",),
    shape_rule=_infer_reshape,
    eager_rule=lambda x, shape: x.reshape(shape),
    only_moves=True,
)


def _infer_transpose(x: TensorSpec, axes: tuple[int, ...]) -> Specs:
    require(sorted(axes) == list(range(x.ndim)), "transpose_c1", f"{axes} is no permutation of {x.ndim} axes")
    return (TensorSpec(tuple(x.shape[axis] for axis in axes), x.dtype),)


_TRANSPOSE = define_op(
    "transpose",
    attributes=("axes",),
    summary="Axis i of the result is axis axes[i] of x.",
    constraints=("axes is a permutation of x's axes",),
    shape_rule=_infer_transpose,
    eager_rule=np.transpose,
    only_moves=True,
)


def _infer_concat(*specs_and_axis: Any) -> Specs:
    *specs, axis = specs_and_axis
    first = specs[0]
    require_axis(axis, first.ndim, "concat_c1")
    for spec in specs[1:]:
        require(spec.dtype is first.dtype, "concat_c2", f"dtypes {first.dtype} and {spec.dtype} differ")
        same = spec.ndim == first.ndim and all(
            a == b for i, (a, b) in enumerate(zip(spec.shape, first.shape, strict=True)) if i != axis
        )
        require(same, "concat_c3", f"shapes {first.shape} and {spec.shape} differ beside axis {axis}")
    shape = list(first.shape)
    shape[axis] = sum(spec.shape[axis] for spec in specs)
    return (TensorSpec(tuple(shape), first.dtype),)


_CONCAT = define_op(
    "concat",
    attributes=("axis",),
    summary="The operands one after the other along an axis.",
    constraints=("axis is one of the first operand's", "the dtypes are equal", "the shapes are equal beside axis"),
    shape_rule=_infer_concat,
    eager_rule=lambda *arrays_and_axis: np.concatenate(arrays_and_axis[:-1], arrays_and_axis[-1]),
    only_moves=True,
)


def _infer_slice(x: TensorSpec, start: tuple[int, ...], stop: tuple[int, ...], step: tuple[int, ...]) -> Specs:
    require(len(start) == len(stop) == len(step) == x.ndim, "slice_c1", f"{start}, {stop}, {step} for {x.ndim} axes")
    for a, b, dim in zip(start, stop, x.shape, strict=True):
        require(0 <= a <= b <= dim, "slice_c2", f"{a} to {b} is not inside a dimension of {dim}")
    require(all(s > 0 for s in step), "slice_c3", f"step {step}")
    shape = tuple(-(-(b - a) // s) for a, b, s in zip(start, stop, step, strict=True))
    return (TensorSpec(shape, x.dtype),)


def _eager_slice(x: Array, start: tuple[int, ...], stop: tuple[int, ...], step: tuple[int, ...]) -> Array:
    return x[tuple(map(slice, start, stop, step))]


_SLICE = define_op(
    "slice",
    attributes=("start", "stop", "step"),
    summary="Every step-th element from start up to, not including, stop, per axis.",
    constraints=("one start, stop and step per axis", "0 <= start <= stop <= dimension", "step is above 0"),
    shape_rule=_infer_slice,
    eager_rule=_eager_slice,
    only_moves=True,
)


def _infer_pad(
    x: TensorSpec, value: TensorSpec, low: tuple[int, ...], high: tuple[int, ...], interior: tuple[int, ...]
) -> Specs:
    require(len(low) == len(high) == len(interior) == x.ndim, "pad_c1", f"{low}, {high}, {interior}: {x.ndim} axes")
    require(min((*low, *high, *interior), default=0) >= 0, "pad_c2", f"{low}, {high}, {interior}")
    require(value.dtype is x.dtype and value.shape == (), "pad_c3", f"value is {value!r} for {x.dtype}")
    shape = tuple(a + dim + max(dim - 1, 0) * i + b for dim, a, b, i in zip(x.shape, low, high, interior, strict=True))
    return (TensorSpec(shape, x.dtype),)


def _eager_pad(x: Array, value: Array, low: tuple[int, ...], high: tuple[int, ...], interior: tuple[int, ...]) -> Array:
    shape = [a + dim + max(dim - 1, 0) * i + b for dim, a, b, i in zip(x.shape, low, high, interior, strict=True)]
    result = np.full(shape, value, x.dtype)
    steps = zip(low, x.shape, interior, strict=True)
    result[tuple(slice(a, a + dim + max(dim - 1, 0) * i, i + 1) for a, dim, i in steps)] = x
    return result


_PAD = define_op(
    "pad",
    attributes=("low", "high", "interior"),
    summary="x with value put before, after and between its elements along each axis.",
    constraints=("one low, high and interior per axis", "none is negative", "value is a rank-0 tensor of x's dtype"),
    shape_rule=_infer_pad,
    eager_rule=_eager_pad,
    only_moves=True,
)


def _infer_reverse(x: TensorSpec, axes: tuple[int, ...]) -> Specs:
    require_axes(axes, x.ndim, "reverse_c1")
    return (x,)


_REVERSE = define_op(
    "reverse",
    attributes=("axes",),
    summary="x with the order of the elements turned round along axes.",
    constraints=("axes are x's, each at most once",),
    shape_rule=_infer_reverse,
    eager_rule=np.flip,
    only_moves=True,
)


def _infer_iota(shape: tuple[int, ...], axis: int, dtype: DType) -> Specs:
    require_axis(axis, len(shape), "iota_c1")
    require(dtype is not bool_, "iota_c2", "the dtype is bool")
    return (TensorSpec(shape, dtype),)


def _eager_iota(shape: tuple[int, ...], axis: int, dtype: DType) -> Array:
    line = np.arange(shape[axis]).astype(dtype.numpy).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return np.broadcast_to(line, shape)


_IOTA = define_op(
    "iota",
    attributes=("shape", "axis", "dtype"),
    summary="0, 1, 2, ... along an axis.",
    constraints=("axis is one of the result's", "dtype is a number"),
    shape_rule=_infer_iota,
    eager_rule=_eager_iota,
)


CONSTANT = define_op(
    "constant",
    attributes=("value",),
    summary="A tensor of values known when the op is recorded, kept exact.",
    shape_rule=lambda value: (value.spec,),
    eager_rule=lambda value: value.array,
)


def _per_axis(values: int | Sequence[int] | None, ndim: int, default: int) -> tuple[int, ...]:
    if values is None or isinstance(values, int):
        return (default if values is None else values,) * ndim
    return tuple(values)


class ShapeOps(OpsBase):
    """Ops that move elements without computing."""

    __slots__ = ()

    def broadcast(self, x: Operand, shape: Sequence[int]) -> Tensor:
        """Returns x repeated to ``shape``, aligned at the right as in NumPy."""
        return self._apply(_BROADCAST, (x,), (tuple(shape),))

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """Returns the same elements in row-major order; one dimension may be -1 and is then inferred."""
        dims = tuple(shape)
        if -1 in dims:
            known = math.prod(dim for dim in dims if dim != -1)
            missing = math.prod(x.shape) // known if known else 0
            dims = tuple(missing if dim == -1 else dim for dim in dims)
        return self._apply(_RESHAPE, (x,), (dims,))

    def transpose(self, x: Tensor, axes: Sequence[int] | None = None) -> Tensor:
        """Permutes the axes: axis i of the result is axis ``axes[i]`` of x; without axes their order is reversed."""
        order = range(x.ndim)[::-1] if axes is None else axes
        return self._apply(_TRANSPOSE, (x,), (tuple(positive_axis(axis, x.ndim) for axis in order),))

    def concat(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        """Returns the tensors one after the other along ``axis``."""
        if not tensors:
            raise OpError("concat() needs at least one tensor, found none")
        return self._apply(_CONCAT, tuple(tensors), (positive_axis(axis, tensors[0].ndim),))

    def split(self, x: Tensor, sizes: Sequence[int], axis: int) -> tuple[Tensor, ...]:
        """Returns x cut along ``axis`` into pieces of the given sizes, which must add up."""
        axis = positive_axis(axis, x.ndim)
        if not 0 <= axis < x.ndim or sum(sizes) != x.shape[axis]:
            raise OpError(
                f"split of shape {x.shape}, axis={axis}: sizes {tuple(sizes)} add up to {sum(sizes)}, not to that axis"
            )
        pieces, begin = [], 0
        for size in sizes:
            pieces.append(self.slice_axis(x, axis, begin, begin + size))
            begin += size
        return tuple(pieces)

    def slice(
        self, x: Tensor, start: Sequence[int], stop: Sequence[int], step: int | Sequence[int] | None = None
    ) -> Tensor:
        """Returns every ``step``-th element from ``start`` up to, not including, ``stop``, per axis."""
        return self._apply(_SLICE, (x,), (tuple(start), tuple(stop), _per_axis(step, x.ndim, 1)))

    def slice_axis(self, x: Tensor, axis: int, start: int, stop: int) -> Tensor:
        """Returns elements ``start`` up to ``stop`` along one axis, and all along the others."""
        starts, stops = [0] * x.ndim, list(x.shape)
        axis = positive_axis(axis, x.ndim)
        if not 0 <= axis < x.ndim:
            raise OpError(f"slice_axis of shape {x.shape}: there is no axis {axis}")
        starts[axis], stops[axis] = start, stop
        return self.slice(x, starts, stops)

    def pad(
        self,
        x: Tensor,
        low: Sequence[int],
        high: Sequence[int],
        value: Operand = 0,
        interior: int | Sequence[int] | None = None,
    ) -> Tensor:
        """Returns x with ``value`` put before (``low``), after (``high``) and between (``interior``) its elements."""
        filler = self._ctx.constant(value, x.dtype) if type(value) in NUMBERS else value
        return self._apply(_PAD, (x, filler), (tuple(low), tuple(high), _per_axis(interior, x.ndim, 0)))

    def reverse(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """Returns x with the order of the elements reversed along ``axes``."""
        return self._apply(_REVERSE, (x,), (tuple(positive_axis(axis, x.ndim) for axis in axes),))


class CreationOps(OpsBase):
    """Ops without operands: constants, inputs, ranges."""

    __slots__ = ()

    def constant(self, value: Any, dtype: DType | str | None = None) -> Tensor:
        """Returns a tensor of values known now: a number, nested sequences, or a NumPy array (copied, exact).

        A Python float without a dtype is f32, an int i32.
        """
        return self._ctx.constant(value, dtype)

    def placeholder(self, name: str, shape: Sequence[int], dtype: DType | str) -> Tensor:
        """Returns a named input: of the graph while recording, else of the eager context's ``inputs``."""
        return self._ctx.placeholder(name, TensorSpec(tuple(shape), dtype))

    def full(self, shape: Sequence[int], value: bool | int | float, dtype: DType | str) -> Tensor:
        """Returns a tensor of one repeated value."""
        return self._apply(_BROADCAST, (self._ctx.constant(value, dtype),), (tuple(shape),))

    def zeros(self, shape: Sequence[int], dtype: DType | str) -> Tensor:
        """Returns a tensor of zeros (False for bool)."""
        return self.full(shape, 0, dtype)

    def ones(self, shape: Sequence[int], dtype: DType | str) -> Tensor:
        """Returns a tensor of ones (True for bool)."""
        return self.full(shape, 1, dtype)

    def iota(self, shape: Sequence[int], axis: int = 0, dtype: DType | str = "i32") -> Tensor:
        """Returns 0, 1, 2, ... along ``axis``, the same along the others."""
        return self._apply(_IOTA, (), (tuple(shape), positive_axis(axis, len(shape)), as_dtype(dtype)))
