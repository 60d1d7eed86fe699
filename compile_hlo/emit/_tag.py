"""Emission of tags, as IREE's trace of a tensor."""

from compile_dag import Node, tag_info
from compile_hlo.emit._emitter import Emitter, emits
from compile_hlo.emit._types import quoted, tensor_type


@emits("tag")
def _tag(e: Emitter, node: Node) -> None:
    info = tag_info(node)
    segments = "operandSegmentSizes = array<i32: 1, 0>"
    name = e.name(node.inputs[0])
    e.line(f'"flow.tensor.trace"({name}) {{key = {quoted(info.name)}, {segments}}} : ({tensor_type(info.spec)}) -> ()')
