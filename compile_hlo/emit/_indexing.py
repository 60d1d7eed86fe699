"""Emission of ops that read or write at run-time positions."""

import math
from typing import Final

import numpy as np

from compile_dag import Node, Value
from compile_hlo.emit._builder import SsaValue
from compile_hlo.emit._emitter import Emitter, emits
from compile_hlo.emit._overrides import overridable
from compile_hlo.emit._slices import dynamic_slice, dynamic_update_slice
from compile_hlo.emit._types import integers, tensor_type
from lang_core import DType, TensorSpec, bool_

_COMBINES: Final = {"add": "add", "mul": "multiply", "max": "maximum", "min": "minimum"}


@emits("dynamic_slice")
def _dynamic_slice(e: Emitter, node: Node) -> None:
    x, *starts = e.values(node.inputs)
    e.alias(node, dynamic_slice(e, x, starts, node.attributes[0]))


@emits("dynamic_update_slice")
def _dynamic_update_slice(e: Emitter, node: Node) -> None:
    x, update = node.inputs[:2]
    if update.spec == x.spec:  # starts are clamped to 0
        e.alias(node, e.name(update))
        return
    into, part, *starts = e.values(node.inputs)
    e.alias(node, dynamic_update_slice(e, into, part, starts))


def _is_empty(e: Emitter, node: Node) -> bool:
    """Returns whether the result has no elements, and then writes it: slices of 1 cannot be taken out of 0 elements."""
    spec = node.results[0].spec
    if spec.size == 0:
        e.alias(node, e.constant(np.zeros(spec.shape, spec.dtype.numpy)))
    return spec.size == 0


@emits("take")
def _take(e: Emitter, node: Node) -> None:
    if not _is_empty(e, node):
        x, indices = node.inputs
        e.alias(node, taken(e, node, take_positions(e, indices, x.shape[node.attributes[0]])))


@overridable("take_positions")
def take_positions(e: Emitter, indices: Value, size: int) -> str:
    """Returns the positions along an axis of ``size`` at which a take begins, which gather clamps."""
    del size
    return e.name(indices)


@overridable("take")
def taken(e: Emitter, node: Node, places: str) -> str:
    """Writes a node's take at positions."""
    x, indices = node.inputs
    axis = node.attributes[0]
    before = tuple(range(axis))
    after = tuple(range(axis + indices.ndim, node.results[0].ndim))
    sizes = ", ".join("1" if i == axis else str(dim) for i, dim in enumerate(x.shape))
    return e.new(
        f'"stablehlo.gather"({e.name(x)}, {places}) <{{dimension_numbers = #stablehlo.gather<'
        f"offset_dims = {integers(before + after)}, collapsed_slice_dims = [{axis}], start_index_map = [{axis}], "
        f"index_vector_dim = {indices.ndim}>, slice_sizes = array<i64: {sizes}>}}> : "
        f"({tensor_type(x.spec)}, {tensor_type(indices.spec)}) -> {tensor_type(node.results[0].spec)}"
    )


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
    x, indices, _ = node.inputs
    if not x.spec.size or not indices.spec.size:
        e.alias(node, e.name(x))
    else:
        e.alias(node, scattered(e, node, e.value(x)))


@overridable("scatter")
def scattered(e: Emitter, node: Node, into: SsaValue, places: str | None = None) -> str:
    """Writes a node's scatter, which drops updates of positions outside.

    Args:
        e: emitter.
        node: scatter.
        into: tensor to update.
        places: name of the positions along the axis; the node's if None.
    """
    _, indices, updates = node.inputs
    axis, reduction = node.attributes
    at = e.name(indices) if places is None else places
    beside, element = _line_dims(into.spec.ndim, axis), tensor_type(TensorSpec((), into.spec.dtype))
    result, old, new = e.fresh(), e.fresh(), e.fresh()
    e.part(
        f'{result} = "stablehlo.scatter"({into.name}, {at}, {e.name(updates)}) '
        f"<{{indices_are_sorted = false, unique_indices = false, scatter_dimension_numbers = #stablehlo.scatter<"
        f"inserted_window_dims = [{axis}], input_batching_dims = {beside}, "
        f"scatter_indices_batching_dims = {beside}, scatter_dims_to_operand_dims = [{axis}], "
        f"index_vector_dim = {into.spec.ndim}>}}> ({{"
    )
    e.part(f"^bb0({old}: {element}, {new}: {element}):")
    value = new if reduction == "set" else _combined(e, reduction, old, new, into.spec.dtype)
    e.line(f"stablehlo.return {value} : {element}")
    e.line(f"}}) : ({into.kind}, {tensor_type(indices.spec)}, {tensor_type(updates.spec)}) -> {into.kind}")
    return result


@emits("put")
def _put(e: Emitter, node: Node) -> None:
    x, _, updates, *_ = node.inputs
    e.alias(node, put_slices(e, node) if updates.spec.size else e.name(x))


@overridable("put")
def put_slices(e: Emitter, node: Node) -> str:
    """Writes a scatter of slices into x as a matrix of them, which IREE makes one dispatch of that writes in place.

    Scatters with batching dimensions, or into an axis that is not the first, get copies and loops around them, and one
    dynamic_update_slice per row reads its start back to the host. If ``where`` is false, the old value is written
    again, so indices need not point outside to drop an update (see ``quirks.scatter_outside``).
    """
    x, indices, updates, *where = node.inputs
    axis = node.attributes[0]
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
        flags, line = TensorSpec(lines.shape, bool_), TensorSpec((lines.size,), bool_)
        is_made = _reshaped(e, e.spread(e.name(where[0]), where[0].spec, flags, (0, 2)), flags, line)
        new = e.select(e.spread(is_made, line, TensorSpec(rows.shape, bool_), (0,)), new, old, rows)
    if matrix.shape[0] == rows.shape[0] == 1:  # all of x is written; compilers fuse a scatter with what makes x
        return _reshaped(e, new, rows, x.spec)
    result = _scattered_rows(e, into, places, new, (matrix, column, rows))
    return _reshaped(e, result, matrix, x.spec)


def _row_numbers(e: Emitter, indices: Value, lines: TensorSpec, size: int) -> str:
    """Returns indices [B, T], clamped, as rows of x [B, .., size, ..] seen as a matrix: [B, between, T]."""
    inside = clamped(e, indices, size)
    begins = (np.arange(lines.shape[0] * lines.shape[1]) * size).astype(indices.dtype.numpy).reshape(lines.shape[:2])
    begin = e.spread(e.constant(begins), TensorSpec(begins.shape, indices.dtype), lines, (0, 1))
    return e.elementwise("add", (begin, e.spread(inside, indices.spec, lines, (0, 2))), lines)


def clamped(e: Emitter, indices: Value, size: int) -> str:
    """Returns indices, brought into 0 to ``size - 1``."""
    number = tensor_type(TensorSpec((), indices.dtype))
    first, last = (e.scalar(bound, indices.dtype) for bound in (0, size - 1))
    return e.new(
        f"stablehlo.clamp {first}, {e.name(indices)}, {last} : "
        f"({number}, {tensor_type(indices.spec)}, {number}) -> {tensor_type(indices.spec)}"
    )


@overridable("put_rows")
def _scattered_rows(e: Emitter, into: str, places: str, new: str, specs: tuple[TensorSpec, ...]) -> str:
    """Writes a scatter of rows into a matrix; specs are those of the matrix, the places [n, 1] and the rows."""
    matrix, column, rows = map(tensor_type, specs)
    element = tensor_type(TensorSpec((), specs[0].dtype))
    result, old, chosen = e.fresh(), e.fresh(), e.fresh()
    e.part(
        f'{result} = "stablehlo.scatter"({into}, {places}, {new}) '
        f"<{{indices_are_sorted = false, unique_indices = true, scatter_dimension_numbers = #stablehlo.scatter<"
        f"update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], "
        f"index_vector_dim = 1>}}> ({{"
    )
    e.part(f"^bb0({old}: {element}, {chosen}: {element}):")
    e.line(f"stablehlo.return {chosen} : {element}")
    e.line(f"}}) : ({matrix}, {column}, {rows}) -> {matrix}")
    return result


def _reshaped(e: Emitter, name: str, old: TensorSpec, new: TensorSpec) -> str:
    reshaped = e.new(f"stablehlo.reshape {name} : ({tensor_type(old)}) -> {tensor_type(new)}")
    return e.of_same_elements(name, reshaped)


def _combined(e: Emitter, reduction: str, old: str, new: str, dtype: DType) -> str:
    spec, wide = TensorSpec((), dtype), TensorSpec((), dtype.accumulation)
    operands = ", ".join([e.convert(name, spec, wide.dtype) for name in (old, new)])
    return e.convert(e.new(f"stablehlo.{_COMBINES[reduction]} {operands} : {tensor_type(wide)}"), wide, dtype)
