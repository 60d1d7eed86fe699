"""Writer of a whole module: functions of entry points, stretch by stretch, then the functions they refer to."""

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Self

from compile_dag import ComputeGraph, Node, Value
from compile_hlo.directions import (
    REFLECTION,
    FunctionFlow,
    KernelSignature,
    LoweredArgument,
    Signature,
    graph_directions,
    reflected,
    signature_of,
)
from compile_hlo.emit._blocks import BlockFunctions
from compile_hlo.emit._builder import Write
from compile_hlo.emit._emitter import Emitter
from compile_hlo.emit._forms import ArgumentParameters, ExternalParameters, Form
from compile_hlo.emit._function import FunctionWriter, alias_attribute, check_aliases_differ
from compile_hlo.emit._helpers import HelperFunctions
from compile_hlo.emit._overrides import Overrides
from compile_hlo.emit._parameter_table import ParameterTable
from compile_hlo.emit._sites import SiteTracer
from compile_hlo.emit._types import quoted, symbol, tensor_type
from lang_core import Argument, GraphError, TagSelection, TensorSpec, checked_choices


class CutStretch(NamedTuple):
    """Nodes between two block boundaries.

    Attributes:
        nodes: nodes, in order.
        results: those of their results that are used later.
    """

    nodes: list[Node]
    results: list[Value]


def stretches(graph: ComputeGraph) -> Iterator[CutStretch]:
    """Yields stretches in order: their nodes, and those of their results that later nodes or the outputs use."""
    pieces = [list(group) for _, group in itertools.groupby(graph.nodes, key=lambda node: node.stretch)]
    last_use = {value.number: len(pieces) for value in graph.outputs.values()}
    for number, nodes in enumerate(pieces):
        for node in nodes:
            for value in node.inputs:
                last_use[value.number] = max(number, last_use.get(value.number, 0))
    for number, nodes in enumerate(pieces):
        used = [value for node in nodes for value in node.results if last_use.get(value.number, 0) > number]
        yield CutStretch(nodes, used)


# Other arguments get numbers, and parameters a name with a point: no two names are the same.
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_]\w*\Z", re.ASCII)


@checked_choices
class ModuleWriter:
    """Writer of a module: functions one by one, then the functions they refer to. Nothing that was written is kept.

    If writing may fail, use it in a ``with`` block, which drops the text that waits for ``end``.

    Args:
        write: takes the text, piece by piece.
        form: form in which parameters come in.
        overrides: functions that take the place of emission's own, such as ``compile_hlo.quirks.QUIRKS``.
        name: name of the module.
        block_functions: whether blocks become private functions, alike ones the same.
        locations: whether ops have their module paths as locations.
    """

    def __init__(
        self,
        write: Write,
        form: Form,
        overrides: Overrides,
        name: str = "tapeline",
        block_functions: bool = False,
        locations: bool = False,
    ) -> None:
        self._write = write
        self._form = form
        self._overrides = overrides
        self._locations = locations
        self._functions: list[str] = []
        self._helpers = HelperFunctions()
        self._inlined: Final = not block_functions
        self._blocks = BlockFunctions(inlined=self._inlined)
        self._kernels = self._blocks.kernels
        self._traced: TagSelection | None = None
        write(f"module {symbol(name)} {{\n")

    def function(
        self,
        graph: ComputeGraph,
        arguments: Sequence[Argument],
        directions: Sequence[LoweredArgument] | None = None,
    ) -> FunctionWriter:
        """Writes a public function.

        Args:
            graph: graph to write.
            arguments: descriptions of the graph's inputs, in their order.
            directions: directions of the arguments before common subexpressions were merged, as streaming finds them;
                those of the graph if None.

        Returns:
            Writer of the function, at its end.
        """
        if isinstance(self._form, ArgumentParameters):
            self._form.specs = ParameterTable()
            self._form.specs.update({path: value.spec for path, value in graph.parameters().items()})
        results = {name: value.spec for name, value in graph.outputs.items()}
        directions = graph_directions(graph, arguments) if directions is None else directions
        function = self.begin(graph.name, graph.inputs, arguments, results, directions)
        for nodes, values in stretches(graph):
            function.stretch(nodes, values)
        function.end(tuple(graph.outputs.values()))
        return function

    def begin(
        self,
        name: str,
        inputs: Mapping[str, Value],
        arguments: Sequence[Argument],
        results: Mapping[str, TensorSpec],
        directions: Sequence[LoweredArgument],
    ) -> FunctionWriter:
        """Writes the head of a public function; the caller writes the body.

        Args:
            name: name of the function.
            inputs: values of its arguments.
            arguments: descriptions of the arguments, in the same order.
            results: specs by name.
            directions: directions of the tensor arguments.

        Raises:
            GraphError: arguments and inputs are not the same, or an alias does not fit.
        """
        check_aliases_differ(name, arguments)
        if [argument.name for argument in arguments] != list(inputs):
            raise GraphError(f"function {name!r}: inputs {list(inputs)} are not the arguments {arguments}")
        self._functions.append(name)
        in_place = {argument.name for argument in directions if argument.in_place}
        emitter = Emitter(
            self._write, self._form, helpers=self._helpers, overrides=self._overrides, locations=self._locations
        )
        emitter.locate(name)
        emitter.tracer = None if self._traced is None else SiteTracer(self._traced)
        heads: list[str] = []
        numbers: list[tuple[str, Argument]] = []
        for argument in arguments:
            text = f"%{argument.name}" if _PLAIN_NAME.match(argument.name) else emitter.fresh()
            kind = tensor_type(argument.spec)
            # Only IREE takes plain numbers, and some devices only those (a Vulkan position, for one).
            if argument.kind == "scalar" and not isinstance(self._form, ArgumentParameters):
                heads.append(f"{text}: {_element(kind)}")
                numbers.append((text, argument))
            else:
                heads.append(f"{text}: {kind}{alias_attribute(name, argument, results, in_place)}")
                emitter.bind(inputs[argument.name], text)
        if isinstance(self._form, ArgumentParameters):
            heads += self._form.heads()
        kinds = ", ".join(map(tensor_type, results.values()))
        reflection = self._reflection(signature_of(name, arguments, results, directions))
        head = f"  func.func public {symbol(name)}({', '.join(heads)}) -> ({kinds}){reflection}"
        self._write(f"{head} {{\n")
        for text, argument in numbers:
            kind = tensor_type(argument.spec)
            load = f'"tensor.from_elements"({text}) : ({_element(kind)}) -> {kind}'
            emitter.bind(inputs[argument.name], emitter.new(load))
        flow = FunctionFlow(arguments, inputs.values())
        function = FunctionWriter(self._write, emitter, self._blocks, flow, tuple(results), directions, self._inlined)
        if isinstance(self._form, ArgumentParameters):
            function.parameters = self._form.specs
        return function

    def _reflection(self, signature: Signature) -> str:
        """Returns attributes that IREE keeps with the compiled function; none in the form that is pure StableHLO."""
        if isinstance(self._form, ArgumentParameters):
            return ""
        text = json.dumps(reflected(signature), separators=(",", ":"))
        return f" attributes {{iree.reflection = {{{REFLECTION} = {quoted(text)}}}}}"

    def trace_kernels(self, selection: TagSelection) -> None:
        """Traces, in the functions that follow, the tensors of kernels that are selected."""
        assert self._inlined, "blocks must be written in place: a shared function has no layer"
        self._blocks.close()
        self._blocks, self._traced = BlockFunctions(inlined=True), selection

    def keep_sums(self, batch_invariant: bool) -> None:
        """Asks, in the functions that follow, for kernels with the same sums for any number of rows, or does not."""
        self._helpers.batch_invariant = batch_invariant

    def kernels(self) -> list[KernelSignature]:
        """Returns the records of the blocks' functions so far, or of the blocks that were written in place of calls."""
        return list(self._kernels.values())

    def helpers(self) -> list[KernelSignature]:
        """Returns the records of the helper functions so far."""
        return list(self._helpers.functions.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._blocks.close()

    def end(self) -> None:
        """Writes the parts of the module outside functions.

        Raises:
            GraphError: a parameter has the name of a function: the two share the module's symbols.
        """
        if isinstance(self._form, ExternalParameters):
            for name in self._functions:
                if name in self._form.specs:
                    raise GraphError(f"parameter {name!r} has the name of an entry point: rename one of the two")
        self._blocks.end(self._write)
        self._helpers.end(self._write, described=not isinstance(self._form, ArgumentParameters))
        self._form.end(self._write)
        self._write("}\n")


def emit_module(
    write: Write,
    functions: Sequence[tuple[ComputeGraph, Sequence[Argument]]],
    form: Form,
    overrides: Overrides,
    name: str = "tapeline",
) -> None:
    """Writes a whole module: graphs, each with the arguments that describe its inputs.

    Args:
        write: receiver of the text.
        functions: graphs with the arguments of each.
        form: form of the parameters.
        overrides: replacements of plain StableHLO.
        name: name of the module.
    """
    with ModuleWriter(write, form, overrides, name) as module:
        for graph, arguments in functions:
            module.function(graph, arguments)
        module.end()


def _element(kind: str) -> str:
    return kind.removeprefix("tensor<").removesuffix(">")
