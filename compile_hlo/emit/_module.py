"""Writer of a whole module: functions of entry points, then what they refer to."""

import json
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, Self

from compile_dag import ComputeGraph, Node, Stretch, Value
from compile_hlo.directions import (
    REFLECTION,
    FunctionFlow,
    KernelSignature,
    LoweredArgument,
    Signature,
    StretchFlow,
    StretchUses,
    graph_directions,
    reflected,
    signature_of,
)
from compile_hlo.emit._blocks import BlockCall, BlockFunctions, CallSite
from compile_hlo.emit._builder import Write
from compile_hlo.emit._emitter import CHAINS, LEAVES, Emitter
from compile_hlo.emit._forms import ArgumentParameters, ExternalParameters, Form
from compile_hlo.emit._helpers import HelperFunctions
from compile_hlo.emit._overrides import Overrides
from compile_hlo.emit._parameter_table import ParameterTable
from compile_hlo.emit._stretches import stretches
from compile_hlo.emit._types import quoted, symbol, tensor_type
from compile_hlo.passes import with_groups
from lang_core import Argument, GraphError, TensorSpec, checked_choices, near_names

# Other arguments get numbers, and parameters a name with a point: no two names are the same.
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_]\w*\Z", re.ASCII)


class WrittenStretch(NamedTuple):
    """Part of a stretch's lowering that does not depend on where the stretch stands.

    Attributes:
        call: call of the block's function; None where the nodes are written in place.
        uses: uses that the stretch makes of its values.
    """

    call: BlockCall | None
    uses: StretchUses


class FunctionWriter:
    """Writer of one function's body, stretch by stretch.

    Attributes:
        parameters: weights that the function reads so far.
        directions: directions of its tensor arguments, once it has ended.
    """

    directions: tuple[LoweredArgument, ...] = ()

    def __init__(
        self,
        write: Write,
        emitter: Emitter,
        blocks: BlockFunctions | None,
        flow: FunctionFlow,
        results: Sequence[str],
        head: Sequence[LoweredArgument],
    ) -> None:
        self._head = head
        self._results = tuple(results)
        self._write = write
        self._emitter = emitter
        self._blocks = blocks
        self._flow = flow
        self.parameters = emitter.parameters

    def stretch(self, nodes: Sequence[Node], results: Sequence[Value]) -> WrittenStretch:
        """Writes the nodes between two block boundaries.

        Args:
            nodes: nodes, in order.
            results: those of their results that are used later, in order.

        Returns:
            What can be repeated for a stretch that is the same.
        """
        flow = StretchFlow(nodes)
        nodes = with_groups(nodes, results, self._emitter.leaves, CHAINS)
        call = None
        if self._blocks is None or all(not node.block or node.op.name in LEAVES for node in nodes):
            self._emitter.nodes(nodes)
        else:
            self._emitter.enter(nodes[0].stretch)
            made = [value for value in results if value.op_name not in LEAVES]
            call = self._blocks.call(CallSite(nodes, made, flow, self._flow), self._emitter)
        uses = flow.uses(nodes, results)
        self._flow.stretch(uses)
        return WrittenStretch(call, uses)

    def repeat(self, call: BlockCall, uses: StretchUses, stretch: Stretch) -> None:
        """Writes a stretch whose function is there already.

        Args:
            call: call of the function, with the values and parameters of this stretch.
            uses: uses that the stretch makes of its values.
            stretch: the stretch.
        """
        assert self._blocks is not None
        self._emitter.enter(stretch)
        self._blocks.repeat(call, self._flow, self._emitter)
        self._flow.stretch(uses)

    def forget(self, values: Iterable[Value]) -> None:
        """Drops what is known of values that are not used any more."""
        gone = list(values)
        self._emitter.forget(gone)
        self._flow.forget([value.number for value in gone])

    def end(self, results: Sequence[Value]) -> None:
        """Writes the return.

        Raises:
            GraphError: the body uses the arguments in other directions than the head has.
        """
        named = dict(zip(self._results, results, strict=True))
        self._emitter.end("return", results, [self._flow.shares(name, value) for name, value in named.items()])
        # Equal updates are merged by now: the head may tell less of an alias than the body would allow.
        self.directions = tuple(
            replace(body, in_place=body.in_place and head.in_place)
            for body, head in zip(self._flow.end(named), self._head, strict=True)
        )
        body, head = ([replace(argument, written=None) for argument in side] for side in (self.directions, self._head))
        if body != head:
            raise GraphError(f"the directions of the head differ from those of the body: {head}, {body}")
        self._write("  }\n")


@checked_choices
class ModuleWriter:
    """Writer of a module: functions one by one, then what they refer to. Nothing that was written is kept.

    Where writing may fail, use it in a ``with`` block, which drops the text that waits for ``end``.

    Args:
        write: takes the text, piece by piece.
        form: form in which parameters come in.
        overrides: functions that take the place of emission's own, such as ``compile_hlo.quirks.QUIRKS``.
        name: name of the module.
        block_functions: whether blocks become private functions, alike ones the same.
    """

    def __init__(
        self, write: Write, form: Form, overrides: Overrides, name: str = "tapeline", block_functions: bool = False
    ) -> None:
        self._write = write
        self._form = form
        self._overrides = overrides
        self._functions: list[str] = []
        self._helpers = HelperFunctions()
        self._blocks = BlockFunctions() if block_functions else None
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
                those of the graph where None.

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
        if isinstance(self._form, ArgumentParameters):
            function.parameters = self._form.specs
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
        _check_aliases_differ(name, arguments)
        if [argument.name for argument in arguments] != list(inputs):
            raise GraphError(f"function {name!r}: inputs {list(inputs)} are not the arguments {arguments}")
        self._functions.append(name)
        in_place = {argument.name for argument in directions if argument.in_place}
        emitter = Emitter(self._write, self._form, helpers=self._helpers, overrides=self._overrides)
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
                heads.append(f"{text}: {kind}{_alias(name, argument, results, in_place)}")
                emitter.bind(inputs[argument.name], text)
        if isinstance(self._form, ArgumentParameters):
            heads += self._form.heads(name)
        kinds = ", ".join(map(tensor_type, results.values()))
        reflection = self._reflection(signature_of(name, arguments, results, directions))
        head = f"  func.func public {symbol(name)}({', '.join(heads)}) -> ({kinds}){reflection}"
        self._write(f"{head} {{\n")
        for text, argument in numbers:
            kind = tensor_type(argument.spec)
            load = f'"tensor.from_elements"({text}) : ({_element(kind)}) -> {kind}'
            emitter.bind(inputs[argument.name], emitter.new(load))
        flow = FunctionFlow(arguments, inputs.values())
        return FunctionWriter(self._write, emitter, self._blocks, flow, tuple(results), directions)

    def _reflection(self, signature: Signature) -> str:
        """Returns attributes that IREE keeps with the compiled function; none in the form that is pure StableHLO."""
        if isinstance(self._form, ArgumentParameters):
            return ""
        text = json.dumps(reflected(signature), separators=(",", ":"))
        return f" attributes {{iree.reflection = {{{REFLECTION} = {quoted(text)}}}}}"

    def kernels(self) -> list[KernelSignature]:
        """Returns the records of the blocks' functions so far."""
        return [] if self._blocks is None else list(self._blocks.kernels.values())

    def helpers(self) -> list[KernelSignature]:
        """Returns the records of the helper functions so far: with ``kernels`` all private functions of the module."""
        return list(self._helpers.functions.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._blocks is not None:
            self._blocks.close()

    def end(self) -> None:
        """Writes what belongs to the module rather than to a function.

        Raises:
            GraphError: a parameter has the name of a function: the two share the module's symbols.
        """
        if isinstance(self._form, ExternalParameters):
            for name in self._functions:
                if name in self._form.specs:
                    raise GraphError(f"parameter {name!r} has the name of an entry point: rename one of the two")
        if self._blocks is not None:
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
    """Writes a whole module: graphs, each with the arguments that describe its inputs."""
    with ModuleWriter(write, form, overrides, name) as module:
        for graph, arguments in functions:
            module.function(graph, arguments)
        module.end()


def _element(kind: str) -> str:
    return kind.removeprefix("tensor<").removesuffix(">")


def _check_aliases_differ(function: str, arguments: Iterable[Argument]) -> None:
    taken: dict[str, str] = {}
    for argument in arguments:
        if argument.alias_result is None:
            continue
        other = taken.setdefault(argument.alias_result, argument.name)
        if other != argument.name:
            raise GraphError(
                f"graph {function!r}: arguments {other!r} and {argument.name!r} are both to become result "
                f"{argument.alias_result!r}: a result takes over one buffer: give each argument a result of its own"
            )


def _alias(function: str, argument: Argument, results: Mapping[str, TensorSpec], in_place: Container[str]) -> str:
    wanted = argument.alias_result
    if wanted is None:
        return ""
    if wanted not in results:
        raise GraphError(
            f"graph {function!r}: argument {argument.name!r} is to become result {wanted!r}, which is not there: it "
            f"has {', '.join(results)}{near_names(wanted, results)}"
        )
    if results[wanted] != argument.spec:
        raise GraphError(
            f"graph {function!r}: argument {argument.name!r} ({argument.spec!r}) cannot become result {wanted!r} "
            f"({results[wanted]!r}): the specs must be equal"
        )
    if argument.name not in in_place:
        return ""
    return f" {{tf.aliasing_output = {list(results).index(wanted)} : i32}}"
