"""Runs graphs node by node in another context: eagerly, or to record them anew."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from itertools import groupby
from typing import Any

from compile_dag._graph import ComputeGraph, regions_of
from compile_dag._graph_ops import TAG
from compile_dag._node import Node
from lang_core import ExecutionContext, GraphError, Parameter, Tensor, near_names, nests_regions

Observer = Callable[[Node, Mapping[int, Tensor]], None]


@nests_regions
def evaluate(graph: ComputeGraph, ctx: ExecutionContext, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Applies every node of the graph in ``ctx``, in the node's block and under its module path.

    A value is dropped after its last use.

    Args:
        graph: graph to run.
        ctx: context that gives the ops their meaning, and the parameters their data.
        inputs: tensors of ``ctx``, of the inputs' shapes and dtypes, by the graph's input names.

    Returns:
        The outputs by name, of the graph's specs.

    Raises:
        GraphError: an input is missing, unknown, or of another spec.
    """
    _check_inputs(graph, inputs)
    values = {value.number: inputs[name] for name, value in graph.inputs.items()}
    _run(graph, ctx, values)
    return {name: values[value.number] for name, value in graph.outputs.items()}


def _check_inputs(graph: ComputeGraph, inputs: Mapping[str, Tensor]) -> None:
    for name in inputs:
        if name not in graph.inputs:
            raise GraphError(f"graph {graph.name!r} has no input {name!r}{near_names(name, graph.inputs)}")
    for name, value in graph.inputs.items():
        if name not in inputs:
            raise GraphError(f"graph {graph.name!r}: input {name!r} ({value.spec!r}) is missing")
        given = inputs[name]
        if not isinstance(given, Tensor):
            kind = type(given).__name__
            raise GraphError(f"graph {graph.name!r}: input {name!r} is of type {kind}: make it with ctx.constant")
        if given.spec != value.spec:
            raise GraphError(f"graph {graph.name!r}: input {name!r} is {given.spec!r}, wanted {value.spec!r}")


def _run(graph: ComputeGraph, ctx: ExecutionContext, values: dict[int, Tensor]) -> None:
    kept = {value.number for value in (*graph.outputs.values(), *graph.captures, *graph.inputs.values())}
    replay(graph.nodes, ctx, values, kept)


def replay(
    nodes: Iterable[Node],
    ctx: ExecutionContext,
    values: dict[int, Tensor],
    kept: set[int] | None = None,
    observe: Observer | None = None,
) -> None:
    """Applies nodes in ``ctx``, each in its block, under its module path and source line.

    Args:
        nodes: nodes in an order in which they can run.
        ctx: context that gives the ops their meaning.
        values: tensors of ``ctx``, of the values' shapes, by the value's number; results are added.
        kept: numbers of the values to keep; all if None. The others are dropped after their last use.
        observe: called with each node of a loop or a branch that was run, and the values at hand there.
    """
    nodes = tuple(nodes)
    last_use = {value.number: node for node in nodes for value in node.inputs} if kept is not None else {}
    path, line = ctx.module_path, ctx.source_line
    try:
        for stretch, members in groupby(nodes, lambda node: node.stretch):
            with ctx.block(stretch.block) if stretch.block else nullcontext():
                for node in members:
                    ctx.module_path, ctx.source_line = node.path, node.line
                    results = _apply(node, ctx, values, observe)
                    values.update((value.number, result) for value, result in zip(node.results, results, strict=True))
                    for value in (*node.inputs, *node.results) if kept is not None else ():
                        if value.number not in kept and last_use.get(value.number, node) is node:  # pyright: ignore[reportOperatorIssue]
                            values.pop(value.number, None)
    finally:
        ctx.module_path, ctx.source_line = path, line


def _apply(
    node: Node, ctx: ExecutionContext, values: dict[int, Tensor], observe: Observer | None
) -> tuple[Tensor, ...]:
    operands = tuple(values[value.number] for value in node.inputs)
    if node.op.name == "parameter":
        path, spec = node.attributes
        return (ctx.parameter(_Named(path, spec)),)
    if node.op.name == "constant":
        return (ctx.constant(node.attributes[0].array),)
    if node.op is TAG and not ctx.isRecording:
        return (ctx.tag(operands[0], node.attributes[0]),)
    regions = [_callable(region, ctx, values, observe) for region in regions_of(node)]
    if node.op.name == "while":
        return ctx.while_loop(lambda *v: regions[0](*v)[0], regions[1], operands[: node.attribute("carried")])
    if node.op.name == "cond":
        return ctx.conditional(operands[0], regions[0], regions[1], ())
    return ctx.apply(node.op, operands, node.attributes)


def _callable(region: ComputeGraph, ctx: ExecutionContext, outer: dict[int, Tensor], observe: Observer | None) -> Any:
    def run(*arguments: Tensor) -> tuple[Tensor, ...]:
        values = {value.number: outer[value.number] for value in region.captures}
        values.update({value.number: given for value, given in zip(region.inputs.values(), arguments, strict=True)})
        if observe is None:
            _run(region, ctx, values)
        else:
            _observed(region, ctx, values, observe)
        return tuple(values[value.number] for value in region.outputs.values())

    return run


def _observed(region: ComputeGraph, ctx: ExecutionContext, values: dict[int, Tensor], observe: Observer) -> None:
    for node in region.nodes:
        replay((node,), ctx, values, observe=observe)
        observe(node, values)


class _Named(Parameter):
    """Parameter that is known by its path alone."""

    __slots__ = ("_path",)

    def __init__(self, path: str, spec: Any) -> None:
        super().__init__(spec.shape, spec.dtype)
        self._path = path

    @property
    def path(self) -> str:
        return self._path
