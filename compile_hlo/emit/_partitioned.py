"""Forms for a compiler that partitions a module over devices: XLA's keeps a dimension cut that an op batches over.

They stand in the text of ``module.vhlo`` of a bundle with a mesh; IREE's text keeps the forms that IREE compiles well
(docs/design/0024-sharding.md).
"""

from collections.abc import Callable
from typing import Final

from compile_dag import Node, Value
from compile_hlo.emit._builder import SsaValue
from compile_hlo.emit._emitter import Emitter
from compile_hlo.emit._indexing import clamped
from compile_hlo.emit._overrides import Overrides
from compile_hlo.emit._row_writes import put_target, row_write
from compile_hlo.emit._types import integers, tensor_type
from compile_hlo.passes import RowWrite
from lang_core import TensorSpec, bool_


def _batched_put(plain: Callable[[Emitter, Node], str], e: Emitter, node: Node) -> str:
    """Writes slices into x as a scatter that batches over the dimensions before the axis, heads among them.

    The plain form sees x as a matrix of all rows and heads: a partitioner then gathers whole caches. Models see x so
    themselves if they write into some of its rows: the pass ``with_row_writes`` has put the reshapes aside.
    """
    del plain
    if isinstance(node, RowWrite):
        return row_write(e, node)
    x, indices, updates, *where = node.inputs
    axis: int = node.attributes[0]
    places = _places(e, indices, x, axis)
    new = e.name(updates)
    if where:
        old, flags = _gathered(e, node, places), TensorSpec(updates.shape, bool_)
        new = e.select(e.spread(e.name(where[0]), where[0].spec, flags, (0, axis)), new, old, updates.spec)
    return _scattered(e, node, places, new)


def _places(e: Emitter, indices: Value, x: Value, axis: int) -> tuple[str, TensorSpec]:
    """Returns indices [B, T], clamped, for each of the dimensions before the axis: [B, .., T, 1]."""
    spec = TensorSpec((*x.shape[:axis], indices.shape[1], 1), indices.dtype)
    return e.spread(clamped(e, indices, x.shape[axis]), indices.spec, spec, (0, axis)), spec


def _gathered(e: Emitter, node: Node, places: tuple[str, TensorSpec]) -> str:
    x, _, updates, *_ = node.inputs
    axis: int = node.attributes[0]
    batch, sizes = integers(tuple(range(axis))), (*[1] * (axis + 1), *x.shape[axis + 1 :])
    return e.new(
        f'"stablehlo.gather"({e.name(x)}, {places[0]}) <{{dimension_numbers = #stablehlo.gather<'
        f"offset_dims = {integers(tuple(range(axis + 1, x.ndim)))}, collapsed_slice_dims = [{axis}], "
        f"operand_batching_dims = {batch}, start_indices_batching_dims = {batch}, start_index_map = [{axis}], "
        f"index_vector_dim = {axis + 1}>, slice_sizes = array<i64: {', '.join(map(str, sizes))}>}}> : "
        f"({tensor_type(x.spec)}, {tensor_type(places[1])}) -> {tensor_type(updates.spec)}"
    )


def _scattered(e: Emitter, node: Node, places: tuple[str, TensorSpec], new: str) -> str:
    x, _, updates, *_ = node.inputs
    axis: int = node.attributes[0]
    into = put_target(e, SsaValue(e.name(x), x.spec)).name
    batch, kind = integers(tuple(range(axis))), tensor_type(x.spec)
    element = tensor_type(TensorSpec((), x.dtype))
    result, old, chosen = e.fresh(), e.fresh(), e.fresh()
    e.part(
        f'{result} = "stablehlo.scatter"({into}, {places[0]}, {new}) '
        f"<{{indices_are_sorted = false, unique_indices = true, scatter_dimension_numbers = #stablehlo.scatter<"
        f"update_window_dims = {integers(tuple(range(axis + 1, x.ndim)))}, inserted_window_dims = [{axis}], "
        f"input_batching_dims = {batch}, scatter_indices_batching_dims = {batch}, "
        f"scatter_dims_to_operand_dims = [{axis}], index_vector_dim = {axis + 1}>}}> ({{"
    )
    e.part(f"^bb0({old}: {element}, {chosen}: {element}):")
    e.line(f"stablehlo.return {chosen} : {element}")
    e.line(f"}}) : ({kind}, {tensor_type(places[1])}, {tensor_type(updates.spec)}) -> {kind}")
    return result


PARTITIONED: Final = Overrides({"put": _batched_put}, exact_products=True, row_writes=True)
"""Plain StableHLO in forms that can be partitioned."""
