"""Lowering: entry points in, StableHLO text out."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from compile_dag import ComputeGraph, TagInfo, has_tags, record, tags_of
from compile_hlo.directions import KernelSignature, LoweredArgument, Signature, graph_directions, signature_of
from compile_hlo.emit import ArgumentParameters, Form, ModuleWriter, Overrides, ParameterTable, Write
from compile_hlo.passes import without_common_subexpressions, without_dead_code
from compile_hlo.quirks import QUIRKS
from compile_hlo.streaming import EmittingSink, PlanningSink
from lang_core import EntryPoint, GraphError, TagSelection, TensorSpec


@dataclass(slots=True)
class LoweredFunction:
    """Entry point whose text was written.

    Attributes:
        signature: its arguments and results.
        parameters: specs by path.
        nodes_recorded: nodes that were recorded.
        nodes_pruned: nodes that no output needs.
        nodes_emitted: nodes that remained when equal ones were merged.
        tags: that a dump of the function has, in order; of loops too.
    """

    signature: Signature
    parameters: ParameterTable
    nodes_recorded: int
    nodes_pruned: int
    nodes_emitted: int
    tags: tuple[TagInfo, ...] = ()

    @property
    def name(self) -> str:
        """The entry point's name."""
        return self.signature.name

    @property
    def results(self) -> dict[str, TensorSpec]:
        """Specs of the results by name, in order."""
        return {result.name: result.spec for result in self.signature.results}

    @property
    def directions(self) -> tuple[LoweredArgument, ...]:
        """The tensor arguments, which alone have a direction."""
        return tuple(argument for argument in self.signature.arguments if argument.kind == "tensor")


@dataclass(slots=True)
class LoweredModule:
    """Module whose text was written.

    Attributes:
        functions: its entry points, in order.
        kernels: its private block functions.
        helpers: its other private functions, which emission rules share.
    """

    functions: list[LoweredFunction] = field(default_factory=list)
    kernels: list[KernelSignature] = field(default_factory=list)
    helpers: list[KernelSignature] = field(default_factory=list)

    def parameters(self) -> ParameterTable:
        """Returns the weights that the module reads."""
        table = ParameterTable()
        for function in self.functions:
            table.update(function.parameters)
        return table


def record_entry_point(entry_point: EntryPoint, tags: TagSelection | None = None) -> ComputeGraph:
    """Records an entry point, with the tags that are selected; no weight is read."""
    names = [argument.name for argument in entry_point.arguments]
    specs = [argument.spec for argument in entry_point.arguments]
    return record(entry_point.fn, *specs, input_names=names, name=entry_point.name, tags=tags)


def lower_module(
    entry_points: Sequence[EntryPoint],
    write: Write,
    form: Form,
    *,
    streaming: bool = False,
    block_functions: bool = True,
    tags: TagSelection | None = None,
    overrides: Overrides = QUIRKS,
) -> LoweredModule:
    """Records, prunes, merges and emits entry points, one after the other.

    Args:
        entry_points: public functions of the module.
        write: function that takes the text, piece by piece.
        form: way in which parameters come in.
        streaming: True to record twice and keep nothing, instead of once and keep the graph. The text is the same.
        block_functions: True to write blocks as private functions, alike ones once
            (docs/design/0005-block-functions.md).
        tags: selection of the model's tags to write, as traces that IREE delivers to a session (docs/dump.md); where
            None, the text is that of a model without tags.
        overrides: emission rules that avoid faults of compilers; with ``NO_OVERRIDES`` the text is plain StableHLO.

    Returns:
        The functions and kernels that were written.

    Raises:
        GraphError: parameters are to be arguments, which a function's head names before its body, and with streaming
            the form does not know them.
        InputError: a glob of ``tags`` matches no tag of any entry point.
    """
    if streaming and isinstance(form, ArgumentParameters) and form.known is None:
        raise GraphError(
            "parameters as arguments cannot be streamed: the function's head names them all: give ArgumentParameters "
            "those of each function (known=...)"
        )
    lower = _streamed if streaming else _buffered
    lowered = LoweredModule()
    with ModuleWriter(write, form, overrides, block_functions=block_functions) as writer:
        for entry_point in entry_points:
            lowered.functions.append(lower(entry_point, writer, tags))
        lowered.kernels, lowered.helpers = writer.kernels(), writer.helpers()
        if tags is not None:
            tags.check()
        writer.end()
    return lowered


def _buffered(entry_point: EntryPoint, writer: ModuleWriter, tags: TagSelection | None) -> LoweredFunction:
    recorded = record_entry_point(entry_point, tags)
    pruned = without_dead_code(recorded)
    graph = without_common_subexpressions(pruned)
    function = writer.function(graph, entry_point.arguments, graph_directions(pruned, entry_point.arguments))
    results = {name: value.spec for name, value in graph.outputs.items()}
    return LoweredFunction(
        signature=signature_of(graph.name, entry_point.arguments, results, function.directions),
        parameters=function.parameters,
        nodes_recorded=len(recorded.nodes),
        nodes_pruned=len(recorded.nodes) - len(pruned.nodes),
        nodes_emitted=len(graph.nodes),
        tags=tuple(tags_of(filter(has_tags, graph.nodes))),
    )


def _streamed(entry_point: EntryPoint, writer: ModuleWriter, tags: TagSelection | None) -> LoweredFunction:
    names = [argument.name for argument in entry_point.arguments]
    specs = [argument.spec for argument in entry_point.arguments]
    planning = PlanningSink(entry_point.arguments)
    plan = record(entry_point.fn, *specs, input_names=names, name=entry_point.name, sink=planning, tags=tags)
    sink = EmittingSink(plan, writer, entry_point.arguments)
    function = record(entry_point.fn, *specs, input_names=names, name=entry_point.name, sink=sink, tags=tags)
    return LoweredFunction(
        signature=signature_of(entry_point.name, entry_point.arguments, plan.results, function.directions),
        parameters=function.parameters,
        nodes_recorded=plan.nodes,
        nodes_pruned=sink.pruned,
        nodes_emitted=sink.emitted,
        tags=tuple(sink.tags),
    )
