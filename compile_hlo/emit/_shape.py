"""Emission of ops that move elements, and of iota."""

from compile_dag import Node
from compile_hlo.emit._emitter import Emitter, emits
from compile_hlo.emit._types import integers, tensor_type


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
    e.define(
        node, f"stablehlo.reverse {e.name(node.inputs[0])}, dims = {integers(node.attributes[0])} : {tensor_type(spec)}"
    )


@emits("iota")
def _iota(e: Emitter, node: Node) -> None:
    e.define(node, f"stablehlo.iota dim = {node.attributes[1]} : {tensor_type(node.results[0].spec)}")
