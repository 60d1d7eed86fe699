"""Emission of ops that move elements, and of iota."""

from compile_dag import Node
from compile_hlo.emit._builder import Builder, SsaValue
from compile_hlo.emit._emitter import Emitter, emits
from compile_hlo.emit._overrides import overridable
from compile_hlo.emit._slices import cut, joined, padded
from compile_hlo.emit._types import integers, tensor_type
from lang_core import TensorSpec


@emits("broadcast")
def _broadcast(e: Emitter, node: Node) -> None:
    e.alias(node, e.operand(node.inputs[0], node.results[0].shape, node.results[0].dtype))


@emits("reshape")
def _reshape(e: Emitter, node: Node) -> None:
    e.alias(node, e.reshape(e.name(node.inputs[0]), node.inputs[0].spec, node.results[0].shape))


@emits("transpose")
def _transpose(e: Emitter, node: Node) -> None:
    e.alias(node, transposed(e, e.value(node.inputs[0]), node.attributes[0], node.results[0].spec))


@overridable("transpose")
def transposed(e: Emitter, x: SsaValue, axes: tuple[int, ...], spec: TensorSpec) -> str:
    """Writes a transpose with a result of the spec."""
    return e.new(f"stablehlo.transpose {x.name}, dims = {integers(axes)} : ({x.kind}) -> {tensor_type(spec)}")


@emits("concat")
def _concat(e: Emitter, node: Node) -> None:
    e.alias(node, joined(e, e.values(node.inputs), node.attributes[0]).name)


@emits("slice")
def _slice(e: Emitter, node: Node) -> None:
    start, stop, step = node.attributes
    e.alias(node, cut(e, e.value(node.inputs[0]), list(zip(start, stop, strict=True)), step).name)


@emits("pad")
def _pad(e: Emitter, node: Node) -> None:
    x, filler = e.values(node.inputs)
    low, high, interior = node.attributes
    e.alias(node, padded(e, x, filler.name, (low, high, interior), node.results[0].spec))


@emits("reverse")
def _reverse(e: Emitter, node: Node) -> None:
    e.alias(node, reversed_along(e, e.name(node.inputs[0]), node.inputs[0].spec, node.attributes[0]))


@overridable("reverse")
def reversed_along(e: Builder, name: str, spec: TensorSpec, dims: tuple[int, ...]) -> str:
    """Writes a reversal of axes."""
    return e.new(f"stablehlo.reverse {name}, dims = {integers(dims)} : {tensor_type(spec)}")


@emits("iota")
def _iota(e: Emitter, node: Node) -> None:
    e.alias(node, counted(e, node.results[0].spec, node.attributes[1]))


@overridable("iota")
def counted(e: Builder, spec: TensorSpec, axis: int) -> str:
    """Writes the positions along an axis."""
    return e.new(f"stablehlo.iota dim = {axis} : {tensor_type(spec)}")
