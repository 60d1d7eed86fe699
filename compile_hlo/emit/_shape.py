"""Emission of ops that move elements, and of iota."""

from compile_dag import Node
from compile_hlo.emit._aligned import begins_off, cut, joined
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
    e.alias(node, joined(e, [(e.name(value), value.spec) for value in node.inputs], node.attributes[0])[0])


@emits("slice")
def _slice(e: Emitter, node: Node) -> None:
    (x,) = node.inputs
    start, stop, step = node.attributes
    e.alias(node, cut(e, e.name(x), x.spec, list(zip(start, stop, strict=True)), step)[0])


@emits("pad")
def _pad(e: Emitter, node: Node) -> None:
    x, value = map(e.name, node.inputs)
    spec = node.inputs[0].spec
    low, high, interior = node.attributes
    if begins_off(node.results[0].shape, low, spec):
        x = e.barrier(x, spec)
    e.define(
        node,
        f"stablehlo.pad {x}, {value}, low = {integers(low)}, high = {integers(high)}, "
        f"interior = {integers(interior)} : {_to_result(node)}",
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
