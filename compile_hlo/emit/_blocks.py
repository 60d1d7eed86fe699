"""Blocks as private functions: blocks whose text is equal are written once and called with their own parameters."""

import hashlib
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from compile_dag import Node, Value
from compile_hlo.directions import FunctionFlow, KernelArgument, KernelResult, KernelSignature, StretchFlow
from compile_hlo.emit._builder import Write
from compile_hlo.emit._emitter import Emitter
from compile_hlo.emit._overrides import overridable
from compile_hlo.emit._types import symbol, tensor_type
from lang_core import TensorSpec

# Bytes of the functions' text that stay in memory; the rest goes to a temporary file.
_TEXT_IN_MEMORY: Final = 1 << 18
_NUMBER: Final = re.compile(r"\d+")
# A block's name up to its last number: the path of the layer that it computes, or goes backward through.
_NUMBERED: Final = re.compile(r"(?:.*\.)?\d+(?=\.|$)")


@dataclass(frozen=True, slots=True)
class CallSite:
    """Stretch of a block, which becomes a call.

    Attributes:
        nodes: nodes of the stretch, not empty.
        results: those of their results that are used later.
        flow: flow of the stretch, which knows which of its operands it writes.
        function: flow of the calling function, which knows which of them it may write.
    """

    nodes: Sequence[Node]
    results: Sequence[Value]
    flow: StretchFlow
    function: FunctionFlow


@dataclass(frozen=True, slots=True)
class _Given:
    """Argument of a function.

    Attributes:
        inside: name in the function.
        outside: name of what is passed.
        spec: shape and dtype.
        key: number of the value that is passed, or path of the parameter.
    """

    inside: str
    outside: str
    spec: TensorSpec
    key: int | str


@overridable("close_block")
def close_block(body: Emitter, results: Sequence[Value]) -> None:
    """Writes what is left to do in a block's function before it returns: nothing."""
    del body, results


class BlockFunctions:
    """Private functions of a module.

    Attributes:
        kernels: signatures, by name.
    """

    def __init__(self) -> None:
        self._names: dict[bytes, str] = {}
        self.kernels: dict[str, KernelSignature] = {}
        self._texts = tempfile.SpooledTemporaryFile(_TEXT_IN_MEMORY, "w+")  # noqa: SIM115 - closed by close()

    def call(self, site: CallSite, emitter: Emitter) -> None:
        """Writes a call in place of the nodes, and the function where it is new.

        Args:
            site: stretch to write.
            emitter: emitter of the calling function.

        Raises:
            GraphError: the function's arguments are not those of its call sites before.
        """
        nodes, results = site.nodes, site.results
        body = _BlockEmitter(emitter, nodes[0].block)
        body.nodes(nodes)
        close_block(body, results)
        body.end("return", results)
        given = body.arguments()
        heads = ", ".join([f"{argument.inside}: {tensor_type(argument.spec)}" for argument in given])
        kinds = ", ".join([tensor_type(value.spec) for value in results])
        text = f"({heads}) -> ({kinds}) {{\n{''.join(body.pieces)}  }}\n"
        arguments = ", ".join([argument.outside for argument in given])
        types = ", ".join([tensor_type(argument.spec) for argument in given])
        function = self._function(text, site, given, body)
        if not results:
            emitter.line(f"call {symbol(function)}({arguments}) : ({types}) -> ()")
            return
        name = emitter.new(f"call {symbol(function)}({arguments}) : ({types}) -> ({kinds})", len(results))
        for index, value in enumerate(results):
            emitter.bind(value, name if len(results) == 1 else f"{name}#{index}")

    def _function(self, text: str, site: CallSite, given: Sequence[_Given], body: "_BlockEmitter") -> str:
        block = site.nodes[0].block
        key = hashlib.sha256(text.encode()).digest()
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = self._free_name(block)
            self._texts.write(f"  func.func private {symbol(name)}{text}")
            for helper in body.called:
                helper.call_sites += 1
        places = _Places(given, body.leaves)
        updated = {places.of(root) for root in site.flow.updated()}
        arguments = tuple(
            KernelArgument(
                argument.spec,
                "INOUT" if isinstance(argument.key, int) and site.function.donated(argument.key) else "IN",
                "INOUT" if place in updated else "IN",
            )
            for place, argument in enumerate(given)
        )
        if name in self.kernels:
            self.kernels[name].join(arguments, f"block {block!r}")
            return name
        taken = [[places.of(root) for root in site.flow.taken_over(value)] for value in site.results]
        results = [
            KernelResult(value.spec, min((place for place in candidates if place is not None), default=None))
            for value, candidates in zip(site.results, taken, strict=True)
        ]
        self.kernels[name] = KernelSignature(name, arguments, tuple(results), source=block)
        return name

    def _free_name(self, block: str) -> str:
        """Returns the block's name without its numbers, and with a number of its own where that is taken."""
        base = f"block.{_without_numbers(block)}"
        name, count = base, 1
        while name in self.kernels:
            count += 1
            name = f"{base}.{count}"
        return name

    def end(self, write: Write) -> None:
        """Writes the functions."""
        self._texts.seek(0)
        shutil.copyfileobj(self._texts, _Writer(write))
        self.close()

    def close(self) -> None:
        """Closes the temporary file."""
        self._texts.close()


class _Places:
    """Positions of a function's arguments by the values that they are; a parameter may be several values."""

    def __init__(self, given: Sequence[_Given], leaves: Mapping[int, Node]) -> None:
        self._places = {argument.key: place for place, argument in enumerate(given)}
        self._leaves = leaves

    def of(self, root: int) -> int | None:
        """Returns the position of a value, given by its number; None where it is no argument."""
        leaf = self._leaves.get(root)
        return self._places.get(root if leaf is None else leaf.attributes[0])


def _without_numbers(block: str) -> str:
    return _NUMBER.sub("N", block)


class _Writer:
    """File whose text goes to a function."""

    def __init__(self, write: Write) -> None:
        self.write = write


class _Load(NamedTuple):
    """Parameter that a block reads."""

    path: str
    spec: TensorSpec


class _BlockEmitter(Emitter):
    """Emitter of a block's body; a value from outside becomes an argument when it is first used.

    Attributes:
        called: helper function of each call in the body, to be counted where the body becomes a function of its own.
    """

    def __init__(self, caller: Emitter, block: str) -> None:
        self.pieces: list[str] = []
        self._captured: dict[str, Value] = {}
        self._loads: dict[str, _Load] = {}
        self.called: list[KernelSignature] = []
        super().__init__(self.pieces.append, self, helpers=caller.helpers, overrides=caller.overrides)
        self._caller = caller
        self.leaves = caller.leaves
        numbered = _NUMBERED.match(block)
        self._prefix = numbered.group() if numbered else block

    def comment(self, path: str) -> str:
        """Returns a module path without the block's numbers, so that alike blocks have equal texts.

        Paths in ``layers.3``, and in ``layers.3.backward`` alike, begin with ``layers.3``.
        """
        inside = path == self._prefix or path.startswith(f"{self._prefix}.")
        return _without_numbers(self._prefix) + path[len(self._prefix) :] if inside else super().comment(path)

    def calls(self, function: KernelSignature) -> None:
        """Notes a call of a helper function."""
        self.called.append(function)

    def foreign(self, value: Value) -> str:
        """Makes a value of the caller an argument."""
        name = f"%value{len(self._captured)}"
        self._caller.name(value)  # raises where the caller does not know it
        self._captured[name] = value
        self.bind(value, name)
        return name

    def load(self, emitter: Emitter, path: str, spec: TensorSpec) -> str:
        """Makes a parameter an argument."""
        name = f"%parameter{len(self._loads)}"
        self._loads[name] = _Load(path, spec)
        return name

    def arguments(self) -> list[_Given]:
        """Returns the arguments: values, then parameters, which are loaded in the caller; scalars after both."""
        values = [
            _Given(name, self._caller.name(value), value.spec, value.number) for name, value in self._captured.items()
        ]
        loads = [
            _Given(name, self._caller.parameter(path, spec), spec, path) for name, (path, spec) in self._loads.items()
        ]
        return sorted([*values, *loads], key=lambda argument: not argument.spec.shape)
