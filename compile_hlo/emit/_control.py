"""Emission of loops and branches."""

from compile_dag import Node
from compile_hlo.emit._emitter import Emitter, emits
from compile_hlo.emit._types import tensor_type


def _bind_results(e: Emitter, node: Node) -> str:
    """Names the results of an op of several results, and returns the left side of its line."""
    name = e.fresh()
    count = len(node.results)
    for index, value in enumerate(node.results):
        e.bind(value, name if count == 1 else f"{name}#{index}")
    return name if count == 1 else f"{name}:{count}"


@emits("while")
def _while(e: Emitter, node: Node) -> None:
    cond, body, carried = node.attributes
    values = node.inputs[:carried]
    initial = [e.name(value) for value in values]
    names = [e.fresh() for _ in values]
    for value in node.inputs[carried:]:
        e.name(value)  # a constant or parameter that a region captures is written before it
    pairs = ", ".join(f"{name} = {start}" for name, start in zip(names, initial, strict=True))
    types = ", ".join(tensor_type(value.spec) for value in values)
    e.part(f"{_bind_results(e, node)} = stablehlo.while({pairs}) : {types}")
    e.part("cond {")
    e.region(cond, names)
    e.part("} do {")
    e.region(body, names)
    e.line("}")


@emits("cond")
def _cond(e: Emitter, node: Node) -> None:
    on_true, on_false = node.attributes
    pred = e.name(node.inputs[0])
    for value in node.inputs[1:]:
        e.name(value)
    e.part(f'{_bind_results(e, node)} = "stablehlo.if"({pred}) ({{')
    e.region(on_true, ())
    e.part("}, {")
    e.region(on_false, ())
    types = ", ".join(tensor_type(value.spec) for value in node.results)
    e.line(f"}}) : (tensor<i1>) -> ({types})")
