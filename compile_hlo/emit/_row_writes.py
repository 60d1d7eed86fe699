"""Writes into rows of a tensor that a partitioner may cut along other dimensions, which its slices have whole."""

from dataclasses import dataclass

from compile_hlo.emit._builder import SsaValue
from compile_hlo.emit._emitter import Emitter
from compile_hlo.emit._overrides import overridable
from compile_hlo.emit._slices import cut, joined
from compile_hlo.emit._types import integers, tensor_type
from compile_hlo.passes import RowWrite
from lang_core import TensorSpec, bool_


@dataclass(frozen=True, slots=True)
class _Places:
    """Places of slices.

    Attributes:
        index: i32 [.., n], along ``dims`` of x.
        dims: dimensions of x that the index is of.
        window: dimensions of the new slices that are whole in x.
    """

    index: SsaValue
    dims: tuple[int, ...]
    window: tuple[int, ...]


@overridable("put_target")
def put_target(e: Emitter, x: SsaValue) -> SsaValue:
    """Returns the tensor that a scatter of the forms for a partitioner writes into: x itself."""
    del e
    return x


def row_write(e: Emitter, node: RowWrite) -> str:
    """Writes a scatter along rows, and along entries if there are some; heads are part of its slices.

    Seen as a matrix of all entries, as models have it, x would have to be whole on each device.
    """
    x, lines, updates, *where = e.values(node.inputs)
    places = _entry_places(e, lines, x, updates) if node.of_entries else _row_places(e, lines, updates)
    new = updates.name
    if where:
        marks = _of_sequences(e, where[0], updates) if node.of_entries else where[0]
        dims = tuple(i for i in range(updates.spec.ndim) if i not in places.window)
        flat = TensorSpec(places.index.spec.shape[:-1], bool_)
        mark = e.reshape(marks.name, marks.spec, flat.shape)
        mask = e.spread(mark, flat, TensorSpec(updates.spec.shape, bool_), dims)
        new = e.select(mask, new, _gathered(e, x, places, updates.spec), updates.spec)
    return _scattered(e, put_target(e, x), places, SsaValue(new, updates.spec))


def _of_sequences(e: Emitter, lines: SsaValue, updates: SsaValue) -> SsaValue:
    """Returns [B, 1, T] of [1, B K T]: the part of the first head."""
    batch, heads, tokens, _ = updates.spec.shape
    spec = TensorSpec((batch, heads, tokens), lines.spec.dtype)
    shaped = SsaValue(e.reshape(lines.name, lines.spec, spec.shape), spec)
    return cut(e, shaped, ((0, batch), (0, 1), (0, tokens)))


def _entry_places(e: Emitter, lines: SsaValue, x: SsaValue, updates: SsaValue) -> _Places:
    """Returns row and position of each entry, of the lines of the first head: [B, T, 2]."""
    first = _of_sequences(e, lines, updates)
    _, heads, capacity, _ = x.spec.shape
    spec = TensorSpec((first.spec.shape[0], first.spec.shape[2], 1), lines.spec.dtype)
    line = e.reshape(first.name, first.spec, spec.shape)
    size = e.filled(heads * capacity, spec)
    row = e.elementwise("divide", (line, size), spec)
    position = e.elementwise("remainder", (line, size), spec)
    index = joined(e, (SsaValue(row, spec), SsaValue(position, spec)), 2)
    return _Places(index, (0, 2), (1, 3))


def _row_places(e: Emitter, rows: SsaValue, updates: SsaValue) -> _Places:
    spec = TensorSpec((updates.spec.shape[0], 1), rows.spec.dtype)
    index = SsaValue(e.reshape(rows.name, rows.spec, spec.shape), spec)
    return _Places(index, (0,), tuple(range(1, updates.spec.ndim)))


def _gathered(e: Emitter, x: SsaValue, places: _Places, result: TensorSpec) -> str:
    sizes = ", ".join("1" if i in places.dims else str(size) for i, size in enumerate(x.spec.shape))
    return e.new(
        f'"stablehlo.gather"({x.name}, {places.index.name}) <{{dimension_numbers = #stablehlo.gather<'
        f"offset_dims = {integers(places.window)}, collapsed_slice_dims = {integers(places.dims)}, "
        f"start_index_map = {integers(places.dims)}, index_vector_dim = {places.index.spec.ndim - 1}>, "
        f"slice_sizes = array<i64: {sizes}>}}> : ({x.kind}, {places.index.kind}) -> {tensor_type(result)}"
    )


def _scattered(e: Emitter, x: SsaValue, places: _Places, new: SsaValue) -> str:
    element = tensor_type(TensorSpec((), x.spec.dtype))
    result, old, chosen = e.fresh(), e.fresh(), e.fresh()
    e.part(
        f'{result} = "stablehlo.scatter"({x.name}, {places.index.name}, {new.name}) '
        f"<{{indices_are_sorted = false, unique_indices = true, scatter_dimension_numbers = #stablehlo.scatter<"
        f"update_window_dims = {integers(places.window)}, inserted_window_dims = {integers(places.dims)}, "
        f"scatter_dims_to_operand_dims = {integers(places.dims)}, "
        f"index_vector_dim = {places.index.spec.ndim - 1}>}}> ({{"
    )
    e.part(f"^bb0({old}: {element}, {chosen}: {element}):")
    e.line(f"stablehlo.return {chosen} : {element}")
    e.line(f"}}) : ({x.kind}, {places.index.kind}, {new.kind}) -> {x.kind}")
    return result
