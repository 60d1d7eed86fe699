"""Dumps of the eager context."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from compile_dag import ComputeGraph, Node, TagInfo, regions_of, replay, tags_of
from compile_hlo import lower_module, record_entry_point
from compile_hlo.emit import ExternalParameters, KernelSite, SiteTensor
from compile_hlo.passes import block_value, is_block_value
from lang_core import (
    ACTIVATION_BITS,
    EagerExecutionContext,
    EagerTensor,
    EntryPoint,
    TagSelection,
    Tensor,
    WeightSource,
)
from runtime.dump._dumper import DumpedCall, Dumper


def tags_by_entry_point(entry_points: Sequence[EntryPoint], globs: Sequence[str]) -> dict[str, list[TagInfo]]:
    """Returns the tags that globs select in each entry point, by recording it without reading weights.

    Raises:
        InputError: a glob does not match a tag of any entry point.
    """
    selection = TagSelection(globs)
    tags = {point.name: list(tags_of(record_entry_point(point, selection).nodes)) for point in entry_points}
    selection.check()
    return tags


def kernel_sites(entry_points: Sequence[EntryPoint], globs: Sequence[str]) -> dict[str, tuple[KernelSite, ...]]:
    """Returns the calls of kernels with tensors that globs select, by entry point, without reading weights.

    Raises:
        InputError: a glob matches neither a tag nor a kernel's tensor of any entry point.
    """
    lowered = lower_module(
        entry_points,
        lambda _: None,
        ExternalParameters(),
        block_functions=False,
        tags=TagSelection(globs),
        trace_kernels=True,
    )
    return {point.name: function.sites for point, function in zip(entry_points, lowered.traced, strict=True)}


class _KernelValues:
    """Finds the tensors of kernels among the values of the recorded ops, in the shapes in which they are passed."""

    def __init__(self, call: DumpedCall, graph: ComputeGraph, values: Mapping[int, Tensor]) -> None:
        self._call = call
        self._values = values
        self._numbers = {
            node.attributes[0]: node.results[0].number for node in graph.nodes if node.op.name == "parameter"
        }
        self._nodes = {value.number: node for node in _all_nodes(graph.nodes) for value in node.results}
        # A call in a region is one op there, or what an op's operand is taken in blocks by: a result tells which one.
        self._regions: dict[int, list[KernelSite]] = {}
        for site in call.sites.values():
            source = site.after[0].source
            if site.in_region and isinstance(source, int):
                key = block_value(source)[0] if is_block_value(source) else source
                self._regions.setdefault(key, []).append(site)

    def region(self, node: Node, values: Mapping[int, Tensor]) -> None:
        """Dumps the call that a node of a loop or a branch is, if it is one."""
        for site in self._regions.get(node.results[0].number, ()) if node.results else ():
            self.dump(site, values)

    def dump(self, site: KernelSite, inner: Mapping[int, Tensor]) -> None:
        """Dumps a call; a value that is not among the inner ones is one of the whole graph."""
        values = {**self._values, **inner} if site.in_region else inner
        if site.before:
            self._call.kernel(site.name, "before", [self._array(tensor, values) for tensor in site.before])
        if site.after:
            self._call.kernel(site.name, "after", [self._array(tensor, values) for tensor in site.after])

    def _array(self, tensor: SiteTensor, values: Mapping[int, Tensor]) -> np.ndarray[Any, Any]:
        number = tensor.source if isinstance(tensor.source, int) else self._numbers[tensor.source]
        value = self._blocks(number, values) if is_block_value(number) else values[number]
        return np.asarray(value.numpy()).reshape(tensor.spec.shape)

    def _blocks(self, number: int, values: Mapping[int, Tensor]) -> Tensor:
        """Returns a tensor of the blocks in which a product with packed weights takes x."""
        product, place = block_value(number)
        node = self._nodes[product]
        x, bits = values[node.inputs[0].number], ACTIVATION_BITS[node.attribute("activations")]
        return EagerExecutionContext().ops.block_quantize(x, bits)[place]


def _all_nodes(nodes: Iterable[Node]) -> Iterator[Node]:
    """Yields nodes, and those of their regions."""
    for node in nodes:
        yield node
        for region in regions_of(node):
            yield from _all_nodes(region.nodes)


def _dump_kernels(
    call: DumpedCall, entry_point: EntryPoint, weights: WeightSource | None, tensors: Sequence[Tensor]
) -> None:
    ctx, graph = EagerExecutionContext(weights), record_entry_point(entry_point)
    values = {value.number: tensor for value, tensor in zip(graph.inputs.values(), tensors, strict=True)}
    kernels = _KernelValues(call, graph, values)
    replay(graph.nodes, ctx, values, observe=kernels.region)
    for site in call.sites.values():
        if not site.in_region:
            kernels.dump(site, values)
    call.check_kernels()


def eager_call(
    dumper: Dumper,
    entry_point: EntryPoint,
    weights: WeightSource | None,
    inputs: Mapping[str, np.ndarray[Any, Any]],
) -> dict[str, np.ndarray[Any, Any]]:
    """Runs an entry point in the eager context, and dumps the call as a session does.

    Args:
        dumper: dumper with the tags of ``tags_by_entry_point``.
        entry_point: entry point to run.
        weights: weights of its model.
        inputs: arrays by the argument's name, of the shapes and dtypes of the entry point's specs.

    Returns:
        The results by name, of the shapes of the entry point's specs.
    """
    call = dumper.call(entry_point.name)

    def sink(name: str, tensor: EagerTensor) -> None:
        if name in call.tags:
            call.tag(name, tensor.numpy())

    ctx = EagerExecutionContext(weights, tag_sink=sink)
    for argument in entry_point.arguments:
        call.argument(argument.name, inputs[argument.name], donated=argument.alias_result is not None)
    tensors = [ctx.constant(inputs[argument.name]) for argument in entry_point.arguments]
    results = {name: tensor.numpy() for name, tensor in entry_point(ctx, *tensors).items()}
    if call.sites:
        _dump_kernels(call, entry_point, weights, tensors)
    aliased = {argument.alias_result for argument in entry_point.arguments}
    for name, array in results.items():
        call.result(name, array, aliased=name in aliased)
    return results
