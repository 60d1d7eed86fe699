"""Emission of ops that read or write at run-time positions."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from compile_dag import Node, Value
from compile_hlo.emit._aligned import begins_off, somewhere
from compile_hlo.emit._elementwise import wide_dtype
from compile_hlo.emit._emitter import Emitter, emits
from compile_hlo.emit._types import integers, tensor_type
from lang_core import DType, TensorSpec, bool_

_COMBINES: Final = {"add": "add", "mul": "multiply", "max": "maximum", "min": "minimum"}


def _call(e: Emitter, node: Node, name: str, operands: Sequence[str], attributes: str = "") -> str:
    types = ", ".join([tensor_type(value.spec) for value in node.inputs])
    result = tensor_type(node.results[0].spec)
    return e.new(f"stablehlo.{name} {', '.join(operands)}{attributes} : ({types}) -> {result}")


@emits("dynamic_slice")
def _dynamic_slice(e: Emitter, node: Node) -> None:
    x, part = node.inputs[0].spec, node.results[0].spec
    operands = [e.name(value) for value in node.inputs]
    if part == x:  # starts are clamped to 0; IREE 3.13 crashes on rank 0
        e.alias(node, operands[0])
        return
    off = begins_off(x.shape, somewhere(x.shape, part.shape), part)
    if off:
        operands[0] = e.barrier(operands[0], x)
    found = _call(e, node, "dynamic_slice", operands, f", sizes = {integers(node.attributes[0])}")
    e.alias(node, e.barrier(found, part) if off else found)


@emits("dynamic_update_slice")
def _dynamic_update_slice(e: Emitter, node: Node) -> None:
    x, part = node.inputs[0].spec, node.inputs[1].spec
    if part == x:
        e.alias(node, e.name(node.inputs[1]))
        return
    operands = [e.name(value) for value in node.inputs]
    if begins_off(x.shape, somewhere(x.shape, part.shape), part):
        operands[1] = e.barrier(operands[1], part)
    e.alias(node, _call(e, node, "dynamic_update_slice", operands))


def _is_empty(e: Emitter, node: Node) -> bool:
    """Whether the result has no elements; it is written then. StableHLO cannot take slices of 1 out of 0 elements."""
    spec = node.results[0].spec
    if spec.size == 0:
        e.alias(node, e.constant(np.zeros(spec.shape, spec.dtype.numpy)))
    return spec.size == 0


@emits("take")
def _take(e: Emitter, node: Node) -> None:
    x, indices = node.inputs
    if _is_empty(e, node):
        return
    axis = node.attributes[0]
    before = tuple(range(axis))
    after = tuple(range(axis + indices.ndim, node.results[0].ndim))
    sizes = tuple(1 if i == axis else dim for i, dim in enumerate(x.shape))
    result = tensor_type(node.results[0].spec)
    places = _inside(e, indices, x.shape[axis])
    rows = e.new(
        f'"stablehlo.gather"({e.name(x)}, {places}) <{{dimension_numbers = #stablehlo.gather<'
        f"offset_dims = {integers(before + after)}, collapsed_slice_dims = [{axis}], start_index_map = [{axis}], "
        f"index_vector_dim = {indices.ndim}>, slice_sizes = array<i64: {', '.join(map(str, sizes))}>}}> : "
        f"({tensor_type(x.spec)}, {tensor_type(indices.spec)}) -> {result}"
    )
    # IREE 3.13 fuses it into a reduction that follows, and for llvmpipe cannot compile what comes of that.
    e.define(node, f"stablehlo.optimization_barrier {rows} : {result}")


def _inside(e: Emitter, indices: Value, size: int) -> str:
    """Indices, clamped if there is but one of rank 0: IREE 3.13 reads outside of x then."""
    if indices.ndim:
        return e.name(indices)
    first, last = (e.scalar(number, indices.dtype) for number in (0, size - 1))
    return e.new(f"stablehlo.clamp {first}, {e.name(indices)}, {last} : {tensor_type(indices.spec)}")


def _line_dims(ndim: int, axis: int) -> str:
    """Batching over every axis but one, in the words of gather's and scatter's dimension numbers."""
    return integers(tuple(i for i in range(ndim) if i != axis))


@emits("gather")
def _gather(e: Emitter, node: Node) -> None:
    x, indices = node.inputs
    if _is_empty(e, node):
        return
    axis = node.attributes[0]
    beside = _line_dims(x.ndim, axis)
    e.define(
        node,
        f'"stablehlo.gather"({e.name(x)}, {e.name(indices)}) <{{dimension_numbers = #stablehlo.gather<'
        f"collapsed_slice_dims = [{axis}], operand_batching_dims = {beside}, start_indices_batching_dims = {beside}, "
        f"start_index_map = [{axis}], index_vector_dim = {x.ndim}>, "
        f"slice_sizes = array<i64: {', '.join(['1'] * x.ndim)}>}}> : "
        f"({tensor_type(x.spec)}, {tensor_type(indices.spec)}) -> {tensor_type(node.results[0].spec)}",
    )


@emits("scatter")
def _scatter(e: Emitter, node: Node) -> None:
    """Updates outside of x go to one more element along the axis, which is cut off again.

    StableHLO drops such updates, but IREE 3.13 writes them wherever they point.
    """
    x, indices, updates = node.inputs
    axis, reduction = node.attributes
    if not x.spec.size or not indices.spec.size:
        e.alias(node, e.name(x))
        return
    room = TensorSpec(tuple(d + 1 if i == axis else d for i, d in enumerate(x.shape)), x.dtype)
    padded = _padded(e, e.name(x), x.spec, room)
    places = _inside_or_last(e, e.name(indices), indices.spec, x.shape[axis])
    beside, element = _line_dims(x.ndim, axis), tensor_type(TensorSpec((), x.dtype))
    result, old, new = e.fresh(), e.fresh(), e.fresh()
    e.line(
        f'{result} = "stablehlo.scatter"({padded}, {places}, {e.name(updates)}) '
        f"<{{indices_are_sorted = false, unique_indices = false, scatter_dimension_numbers = #stablehlo.scatter<"
        f"inserted_window_dims = [{axis}], input_batching_dims = {beside}, "
        f"scatter_indices_batching_dims = {beside}, scatter_dims_to_operand_dims = [{axis}], "
        f"index_vector_dim = {x.ndim}>}}> ({{"
    )
    e.line(f"^bb0({old}: {element}, {new}: {element}):")
    value = new if reduction == "set" else _combined(e, reduction, old, new, x.dtype)
    e.line(f"stablehlo.return {value} : {element}")
    e.line(
        f"}}) : ({tensor_type(room)}, {tensor_type(indices.spec)}, {tensor_type(updates.spec)}) -> {tensor_type(room)}"
    )
    ranges = ", ".join([f"0:{dim}" for dim in x.shape])
    e.define(node, f"stablehlo.slice {result} [{ranges}] : ({tensor_type(room)}) -> {tensor_type(x.spec)}")


@emits("put")
def _put(e: Emitter, node: Node) -> None:
    """A scatter of slices into x as a matrix of them: IREE 3.13 makes one dispatch of it that writes in place.

    Scatters with batching dimensions, or into an axis that is not the first, get copies and loops around them, and one
    dynamic_update_slice per row reads its start back to the host, wrongly on Vulkan. Updates that are not made are what
    stands in their places: nothing can be dropped, for IREE writes wherever a scatter points.
    """
    x, indices, updates, *where = node.inputs
    axis = node.attributes[0]
    if not updates.spec.size:
        e.alias(node, e.name(x))
        return
    between, size, width = math.prod(x.shape[1:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])
    lines = TensorSpec((x.shape[0], between, indices.shape[1]), indices.dtype)
    matrix, rows = TensorSpec((x.shape[0] * between * size, width), x.dtype), TensorSpec((lines.size, width), x.dtype)
    column = TensorSpec((lines.size, 1), indices.dtype)
    places = _reshaped(e, _row_numbers(e, indices, lines, size), lines, column)
    into = _reshaped(e, e.name(x), x.spec, matrix)
    new = _reshaped(e, e.name(updates), updates.spec, rows)
    if where:
        old = e.new(
            f'"stablehlo.gather"({into}, {places}) <{{dimension_numbers = #stablehlo.gather<offset_dims = [1], '
            f"collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, "
            f"slice_sizes = array<i64: 1, {width}>}}> : "
            f"({tensor_type(matrix)}, {tensor_type(column)}) -> {tensor_type(rows)}"
        )
        spread = _spread(e, e.name(where[0]), where[0].spec, TensorSpec(lines.shape, bool_), (0, 2))
        line = _reshaped(e, spread, TensorSpec(lines.shape, bool_), TensorSpec((lines.size,), bool_))
        chosen = _spread(e, line, TensorSpec((lines.size,), bool_), TensorSpec(rows.shape, bool_), (0,))
        new = e.select(chosen, new, old, rows)
    result = _scattered_rows(e, into, places, new, (matrix, column, rows))
    e.define(node, f"stablehlo.reshape {result} : ({tensor_type(matrix)}) -> {tensor_type(x.spec)}")


def _row_numbers(e: Emitter, indices: Value, lines: TensorSpec, size: int) -> str:
    """indices [B, T], clamped, as rows of x [B, .., size, ..] seen as a matrix: [B, between, T]."""
    number = tensor_type(TensorSpec((), indices.dtype))
    first, last = (e.scalar(each, indices.dtype) for each in (0, size - 1))
    inside = e.new(
        f"stablehlo.clamp {first}, {e.name(indices)}, {last} : "
        f"({number}, {tensor_type(indices.spec)}, {number}) -> {tensor_type(indices.spec)}"
    )
    begins = (np.arange(lines.shape[0] * lines.shape[1]) * size).astype(indices.dtype.numpy).reshape(lines.shape[:2])
    begin = _spread(e, e.constant(begins), TensorSpec(begins.shape, indices.dtype), lines, (0, 1))
    spread = _spread(e, inside, indices.spec, lines, (0, 2))
    return e.new(f"stablehlo.add {begin}, {spread} : {tensor_type(lines)}")


def _spread(e: Emitter, name: str, old: TensorSpec, new: TensorSpec, dims: tuple[int, ...]) -> str:
    return e.new(
        f"stablehlo.broadcast_in_dim {name}, dims = {integers(dims)} : ({tensor_type(old)}) -> {tensor_type(new)}"
    )


def _scattered_rows(e: Emitter, into: str, places: str, new: str, specs: tuple[TensorSpec, ...]) -> str:
    matrix, column, rows = map(tensor_type, specs)
    element = tensor_type(TensorSpec((), specs[0].dtype))
    result, old, chosen = e.fresh(), e.fresh(), e.fresh()
    e.line(
        f'{result} = "stablehlo.scatter"({into}, {places}, {new}) '
        f"<{{indices_are_sorted = false, unique_indices = true, scatter_dimension_numbers = #stablehlo.scatter<"
        f"update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], "
        f"index_vector_dim = 1>}}> ({{"
    )
    e.line(f"^bb0({old}: {element}, {chosen}: {element}):")
    e.line(f"stablehlo.return {chosen} : {element}")
    e.line(f"}}) : ({matrix}, {column}, {rows}) -> {matrix}")
    return result


def _reshaped(e: Emitter, name: str, old: TensorSpec, new: TensorSpec) -> str:
    return e.new(f"stablehlo.reshape {name} : ({tensor_type(old)}) -> {tensor_type(new)}")


def _combined(e: Emitter, reduction: str, old: str, new: str, dtype: DType) -> str:
    spec, wide = TensorSpec((), dtype), TensorSpec((), wide_dtype(dtype))
    operands = ", ".join([e.convert(name, spec, wide.dtype) for name in (old, new)])
    return e.convert(e.new(f"stablehlo.{_COMBINES[reduction]} {operands} : {tensor_type(wide)}"), wide, dtype)


def _padded(e: Emitter, name: str, spec: TensorSpec, room: TensorSpec) -> str:
    zero = e.scalar(0, spec.dtype)
    high = integers(tuple(b - a for a, b in zip(spec.shape, room.shape, strict=True)))
    none = integers((0,) * spec.ndim)
    return e.new(
        f"stablehlo.pad {name}, {zero}, low = {none}, high = {high}, interior = {none} : "
        f"({tensor_type(spec)}, {tensor_type(TensorSpec((), spec.dtype))}) -> {tensor_type(room)}"
    )


def _inside_or_last(e: Emitter, name: str, spec: TensorSpec, size: int) -> str:
    """Indices, with ``size`` in place of every one outside of 0 .. size - 1."""
    number = spec.dtype.numpy.type
    zero, most = e.constant(number(0), spec), e.constant(number(size), spec)
    negative = e.compare("LT", name, zero, spec)
    bounded = e.new(f"stablehlo.minimum {name}, {most} : {tensor_type(spec)}")
    return e.select(negative, most, bounded, spec)
