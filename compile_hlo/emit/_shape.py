"""Emission of ops that move elements, and of iota."""

from compile_dag import Node
from compile_hlo.emit._emitter import Emitter, emits
from compile_hlo.emit._types import integers, tensor_type
from lang_core import TensorSpec, i8, i32, u8


def _to_result(node: Node) -> str:
    operands = ", ".join([tensor_type(value.spec) for value in node.inputs])
    return f"({operands}) -> {tensor_type(node.results[0].spec)}"


@emits("broadcast")
def _broadcast(e: Emitter, node: Node) -> None:
    e.alias(node, e.operand(node.inputs[0], node.results[0].shape, node.results[0].dtype))


@emits("reshape")
def _reshape(e: Emitter, node: Node) -> None:
    e.alias(node, e.reshape(e.name(node.inputs[0]), node.inputs[0].spec, node.results[0].shape))


@emits("transpose")
def _transpose(e: Emitter, node: Node) -> None:
    dims = integers(node.attributes[0])
    e.define(node, f"stablehlo.transpose {e.name(node.inputs[0])}, dims = {dims} : {_to_result(node)}")


@emits("concat")
def _concat(e: Emitter, node: Node) -> None:
    operands = ", ".join([e.name(value) for value in node.inputs])
    e.define(node, f"stablehlo.concatenate {operands}, dim = {node.attributes[0]} : {_to_result(node)}")


@emits("slice")
def _slice(e: Emitter, node: Node) -> None:
    start, stop, step = node.attributes
    ranges = [f"{a}:{b}" if s == 1 else f"{a}:{b}:{s}" for a, b, s in zip(start, stop, step, strict=True)]
    e.define(node, f"stablehlo.slice {e.name(node.inputs[0])} [{', '.join(ranges)}] : {_to_result(node)}")


@emits("pad")
def _pad(e: Emitter, node: Node) -> None:
    x, value = map(e.name, node.inputs)
    low, high, interior = map(integers, node.attributes)
    e.define(
        node, f"stablehlo.pad {x}, {value}, low = {low}, high = {high}, interior = {interior} : {_to_result(node)}"
    )


@emits("reverse")
def _reverse(e: Emitter, node: Node) -> None:
    spec = node.results[0].spec
    x, dims = e.name(node.inputs[0]), integers(node.attributes[0])
    if not node.attributes[0]:  # IREE 3.13 cannot compile it for no axes
        e.alias(node, x)
        return
    if spec.dtype is not u8:
        e.define(node, f"stablehlo.reverse {x}, dims = {dims} : {tensor_type(spec)}")
        return
    # IREE 3.13 cannot compile it for unsigned integers.
    signed = TensorSpec(spec.shape, i8)
    there, back = (f"({tensor_type(a)}) -> {tensor_type(b)}" for a, b in ((spec, signed), (signed, spec)))
    turned = e.new(f"stablehlo.bitcast_convert {x} : {there}")
    turned = e.new(f"stablehlo.reverse {turned}, dims = {dims} : {tensor_type(signed)}")
    e.define(node, f"stablehlo.bitcast_convert {turned} : {back}")


@emits("iota")
def _iota(e: Emitter, node: Node) -> None:
    spec = node.results[0].spec
    wide = TensorSpec(spec.shape, i32 if spec.dtype.itemsize == 2 else spec.dtype)
    name = e.new(f"stablehlo.iota dim = {node.attributes[1]} : {tensor_type(wide)}")
    e.alias(node, e.convert(name, wide, spec.dtype))
