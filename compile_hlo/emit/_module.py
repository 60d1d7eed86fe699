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


def emit_module(
    write: Write,
    functions: Sequence[tuple[ComputeGraph, Sequence[Argument]]],
    form: Form,
    name: str = "tapeline",
) -> None:
    """Writes a module.

    Args:
        write: takes the text, piece by piece; nothing is kept.
        functions: graphs, each with the arguments that describe its inputs, in the same order.
        form: how parameters come in.
        name: of the module.
    """
    write(f"module {symbol(name)} {{\n")
    for graph, arguments in functions:
        _emit_function(write, graph, arguments, form)
    form.end(write)
    write("}\n")


def _emit_function(write: Write, graph: ComputeGraph, arguments: Sequence[Argument], form: Form) -> None:
    if [a.name for a in arguments] != list(graph.inputs):
        raise GraphError(f"graph {graph.name!r}: inputs {list(graph.inputs)} are not the arguments {arguments}")
    emitter = Emitter(write, form)
    heads: list[str] = []
    scalars: list[tuple[str, Argument]] = []
    for index, (argument, value) in enumerate(zip(arguments, graph.inputs.values(), strict=True)):
        name = f"%{argument.name}" if _PLAIN_NAME.match(argument.name) else f"%arg{index}"
        if argument.kind == "scalar" and not form.portable:
            element = tensor_type(value.spec).removeprefix("tensor<").removesuffix(">")
            heads.append(f"{name}: {element}")
            scalars.append((name, argument))
        else:
            heads.append(f"{name}: {tensor_type(value.spec)}{_alias(graph, argument)}")
            emitter.bind(value, name)
    if isinstance(form, ArgumentParameters):
        form.names = {path: f"%parameter{i}" for i, path in enumerate(graph.parameters())}
        heads += [f"{form.names[path]}: {tensor_type(value.spec)}" for path, value in graph.parameters().items()]
    results = ", ".join(tensor_type(value.spec) for value in graph.outputs.values())
    write(f"  func.func public {symbol(graph.name)}({', '.join(heads)}) -> ({results}) {{\n")
    for name, argument in scalars:
        value = graph.inputs[argument.name]
        kind = tensor_type(value.spec)
        element = kind.removeprefix("tensor<").removesuffix(">")
        emitter.bind(value, emitter.new(f'"tensor.from_elements"({name}) : ({element}) -> {kind}'))
    emitter.nodes(graph.nodes)
    emitter.end("return", graph.outputs.values())
    write("  }\n")


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
