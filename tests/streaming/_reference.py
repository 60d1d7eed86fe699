"""Lowering of whole graphs, which lowering by stretches is held against."""

from collections.abc import Sequence

from compile_dag import has_tags, tags_of
from compile_hlo import LoweredFunction, LoweredModule, record_entry_point
from compile_hlo.directions import graph_directions, signature_of
from compile_hlo.emit import Form, ModuleWriter
from compile_hlo.passes import without_common_subexpressions, without_dead_code
from compile_hlo.quirks import QUIRKS
from lang_core import EntryPoint, TagSelection


def lower_graphs(
    entry_points: Sequence[EntryPoint],
    form: Form,
    *,
    block_functions: bool = True,
    locations: bool = False,
    tags: Sequence[str] | None = None,
) -> tuple[str, LoweredModule]:
    """Lowers entry points, each as one graph that is pruned and merged as a whole: no template, no plan, no journal.

    Returns:
        The text, and what was written; ``largest_stretch`` is not known.
    """
    pieces: list[str] = []
    lowered = LoweredModule()
    with ModuleWriter(pieces.append, form, QUIRKS, block_functions=block_functions, locations=locations) as writer:
        for point in entry_points:
            recorded = record_entry_point(point, None if tags is None else TagSelection(tags))
            pruned = without_dead_code(recorded)
            graph = without_common_subexpressions(pruned)
            function = writer.function(graph, point.arguments, graph_directions(pruned, point.arguments))
            results = {name: value.spec for name, value in graph.outputs.items()}
            lowered.functions.append(
                LoweredFunction(
                    signature_of(graph.name, point.arguments, results, function.directions),
                    function.parameters,
                    len(recorded.nodes),
                    len(recorded.nodes) - len(pruned.nodes),
                    len(graph.nodes),
                    tuple(tags_of(filter(has_tags, graph.nodes))),
                )
            )
        lowered.kernels, lowered.helpers = writer.kernels(), writer.helpers()
        writer.end()
    return "".join(pieces), lowered
