"""A whole module: functions of entry points, then what they refer to."""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from compile_dag import ComputeGraph
from compile_hlo.emit._emitter import Emitter, Write
from compile_hlo.emit._types import dense, tensor_type
from lang_core import Argument, GraphError, TensorSpec

_PLAIN_NAME: Final = re.compile(r"[A-Za-z_$.-][\w$.-]*\Z", re.ASCII)


def quoted(text: str) -> str:
    """A string attribute."""
    return '"' + "".join(c if c.isprintable() and c not in '"\\' and c < "\x7f" else _escaped(c) for c in text) + '"'


def _escaped(character: str) -> str:
    return "".join(f"\\{byte:02X}" for byte in character.encode())


def symbol(text: str) -> str:
    """A symbol reference, quoted where it must be."""
    return f"@{text}" if re.match(r"[A-Za-z_][\w$.]*\Z", text, re.ASCII) else f"@{quoted(text)}"


class ExternalParameters:
    """Parameters that IREE loads from an archive: ``#flow.parameter.named``. They never pass the compiler.

    IREE's ops stand in MLIR's generic form, which every StableHLO parser reads if it allows other dialects.
    """

    portable: Final = False

    def __init__(self, scope: str = "model") -> None:
        self._scope = scope
        self._specs: dict[str, TensorSpec] = {}

    def load(self, emitter: Emitter, path: str, spec: TensorSpec) -> str:
        """Loads a global."""
        self._specs.setdefault(path, spec)
        return emitter.new(f'"util.global.load"() {{global = {symbol(path)}}} : () -> {tensor_type(spec)}')

    def end(self, write: Write) -> None:
        """Writes the globals."""
        for path, spec in self._specs.items():
            kind = tensor_type(spec)
            write(
                f'  "util.global"() {{sym_name = {quoted(path)}, sym_visibility = "private", type = {kind}, '
                f"initial_value = #flow.parameter.named<{quoted(self._scope)}::{quoted(path)}> : {kind}}} : () -> ()\n"
            )


class InlineParameters:
    """Parameters as exact constants in the text."""

    portable: Final = False

    def __init__(self, read: Callable[[str, TensorSpec], np.ndarray[Any, Any]]) -> None:
        self._read = read

    def load(self, emitter: Emitter, path: str, spec: TensorSpec) -> str:
        """Writes the data."""
        return emitter.new(f"stablehlo.constant {dense(self._read(path, spec))} : {tensor_type(spec)}")

    def end(self, write: Write) -> None:
        """Nothing is left to write."""


class ArgumentParameters:
    """Parameters as further arguments, after the entry point's own: pure StableHLO, for any consumer.

    A function's header comes before its body, so the parameters must be known beforehand.
    """

    portable: Final = True

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def load(self, emitter: Emitter, path: str, spec: TensorSpec) -> str:
        """The argument's name."""
        return self.names[path]

    def end(self, write: Write) -> None:
        """Nothing is left to write."""


Form = ExternalParameters | InlineParameters | ArgumentParameters


class ModuleWriter:
    """Writes a module: functions one by one, then what they refer to. Nothing that was written is kept.

    Args:
        write: takes the text, piece by piece.
        form: how parameters come in.
        name: of the module.
    """

    def __init__(self, write: Write, form: Form, name: str = "tapeline") -> None:
        self._write = write
        self._form = form
        write(f"module {symbol(name)} {{\n")

    def function(self, graph: ComputeGraph, arguments: Sequence[Argument]) -> None:
        """Writes a public function.

        Args:
            graph: what it computes.
            arguments: what is to be known of the graph's inputs, in their order.
        """
        if [argument.name for argument in arguments] != list(graph.inputs):
            raise GraphError(f"graph {graph.name!r}: inputs {list(graph.inputs)} are not the arguments {arguments}")
        emitter = Emitter(self._write, self._form)
        self._write(f"  func.func public {symbol(graph.name)}({self._header(graph, arguments, emitter)}) -> (")
        self._write(", ".join(tensor_type(value.spec) for value in graph.outputs.values()) + ") {\n")
        for index, argument in enumerate(arguments):
            if self._is_number(argument):
                kind, name = tensor_type(argument.spec), _argument_name(argument, index)
                load = f'"tensor.from_elements"({name}) : ({_element(kind)}) -> {kind}'
                emitter.bind(graph.inputs[argument.name], emitter.new(load))
        emitter.nodes(graph.nodes)
        emitter.end("return", graph.outputs.values())
        self._write("  }\n")

    def end(self) -> None:
        """Writes what belongs to the module rather than to a function."""
        self._form.end(self._write)
        self._write("}\n")

    def _is_number(self, argument: Argument) -> bool:
        # Only IREE takes plain numbers, and some devices only those (a Vulkan position, for one).
        return argument.kind == "scalar" and not isinstance(self._form, ArgumentParameters)

    def _header(self, graph: ComputeGraph, arguments: Sequence[Argument], emitter: Emitter) -> str:
        heads: list[str] = []
        for index, argument in enumerate(arguments):
            name, kind = _argument_name(argument, index), tensor_type(argument.spec)
            if self._is_number(argument):
                heads.append(f"{name}: {_element(kind)}")
            else:
                heads.append(f"{name}: {kind}{_alias(graph, argument)}")
                emitter.bind(graph.inputs[argument.name], name)
        if isinstance(self._form, ArgumentParameters):
            parameters = graph.parameters()
            self._form.names = {path: f"%parameter{i}" for i, path in enumerate(parameters)}
            heads += [f"{self._form.names[path]}: {tensor_type(v.spec)}" for path, v in parameters.items()]
        return ", ".join(heads)


def emit_module(
    write: Write, functions: Sequence[tuple[ComputeGraph, Sequence[Argument]]], form: Form, name: str = "tapeline"
) -> None:
    """Writes a whole module: graphs, each with the arguments that describe its inputs."""
    module = ModuleWriter(write, form, name)
    for graph, arguments in functions:
        module.function(graph, arguments)
    module.end()


def _argument_name(argument: Argument, index: int) -> str:
    return f"%{argument.name}" if _PLAIN_NAME.match(argument.name) else f"%arg{index}"


def _element(kind: str) -> str:
    return kind.removeprefix("tensor<").removesuffix(">")


def _alias(graph: ComputeGraph, argument: Argument) -> str:
    if argument.alias_result is None:
        return ""
    result = graph.output(argument.alias_result)
    if result.spec != argument.spec:
        raise GraphError(
            f"graph {graph.name!r}: argument {argument.name!r} ({argument.spec!r}) cannot become result "
            f"{argument.alias_result!r} ({result.spec!r}): the specs must be equal"
        )
    return f" {{tf.aliasing_output = {list(graph.outputs).index(argument.alias_result)} : i32}}"
