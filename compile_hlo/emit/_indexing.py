"""Emission of ops that read or write at run-time positions."""

from compile_dag import Node
from compile_hlo.emit._emitter import Emitter, emits
from compile_hlo.emit._types import integers, tensor_type


def _call(e: Emitter, node: Node, name: str, attributes: str = "") -> None:
    operands = ", ".join([e.name(value) for value in node.inputs])
    types = ", ".join([tensor_type(value.spec) for value in node.inputs])
    e.define(node, f"stablehlo.{name} {operands}{attributes} : ({types}) -> {tensor_type(node.results[0].spec)}")


@emits("dynamic_slice")
def _dynamic_slice(e: Emitter, node: Node) -> None:
    _call(e, node, "dynamic_slice", f", sizes = {integers(node.attributes[0])}")


@emits("dynamic_update_slice")
def _dynamic_update_slice(e: Emitter, node: Node) -> None:
    _call(e, node, "dynamic_update_slice")


@emits("take")
def _take(e: Emitter, node: Node) -> None:
    x, indices = node.inputs
    axis = node.attributes[0]
    before = tuple(range(axis))
    after = tuple(range(axis + indices.ndim, node.results[0].ndim))
    sizes = tuple(1 if i == axis else dim for i, dim in enumerate(x.shape))
    e.define(
        node,
        f'"stablehlo.gather"({e.name(x)}, {e.name(indices)}) <{{dimension_numbers = #stablehlo.gather<'
        f"offset_dims = {integers(before + after)}, collapsed_slice_dims = [{axis}], start_index_map = [{axis}], "
        f"index_vector_dim = {indices.ndim}>, slice_sizes = array<i64: {', '.join(map(str, sizes))}>}}> : "
        f"({tensor_type(x.spec)}, {tensor_type(indices.spec)}) -> {tensor_type(node.results[0].spec)}",
    )
