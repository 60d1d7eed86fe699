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


class _Given(NamedTuple):
    """Argument of a function.

    Attributes:
        name: name in the function.
        spec: shape and dtype.
        passed: value that is passed, or path of the parameter.
    """

    name: str
    spec: TensorSpec
    passed: Value | str

    @property
    def key(self) -> int | str:
        """Number of the value, or path of the parameter."""
        return self.passed if isinstance(self.passed, str) else self.passed.number


@dataclass(frozen=True, slots=True)
class BlockCall:
    """Call of a block's function, which can be repeated with other values and parameters.

    Attributes:
        function: name of the function.
        block: name of the block.
        passed: values and paths of parameters, in the order of the function's arguments.
        specs: specs of the arguments.
        loads: positions of the parameters among the arguments, in the order in which they are loaded.
        updated: positions of the arguments that the function updates.
        results: values that the call makes.
    """

    function: str
    block: str
    passed: tuple[Value | str, ...]
    specs: tuple[TensorSpec, ...]
    loads: tuple[int, ...]
    updated: frozenset[int]
    results: tuple[Value, ...]

    def arguments(self, flow: FunctionFlow) -> tuple[KernelArgument, ...]:
        """Returns the directions of the arguments, given the flow of the calling function."""
        return tuple(
            [
                KernelArgument(
                    spec,
                    "INOUT" if isinstance(passed, Value) and flow.donated(passed.number) else "IN",
                    "INOUT" if place in self.updated else "IN",
                )
                for place, (spec, passed) in enumerate(zip(self.specs, self.passed, strict=True))
            ]
        )


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

    def call(self, site: CallSite, emitter: Emitter) -> BlockCall:
        """Writes a call in place of the nodes, and the function where it is new.

        Args:
            site: stretch to write.
            emitter: emitter of the calling function.

        Returns:
            The call, to be repeated for stretches that are the same.

        Raises:
            GraphError: the function's arguments are not those of its call sites before.
        """
        nodes, results = site.nodes, site.results
        body = _BlockEmitter(emitter, nodes[0].block)
        body.nodes(nodes)
        close_block(body, results)
        body.end("return", results)
        given = body.arguments()
        heads = ", ".join([f"{argument.name}: {tensor_type(argument.spec)}" for argument in given])
        kinds = ", ".join([tensor_type(value.spec) for value in results])
        function = self._function(f"({heads}) -> ({kinds}) {{\n{''.join(body.pieces)}  }}\n", body)
        keys = [argument.key for argument in given]
        places = _Places(keys, body.leaves)
        updated = frozenset([place for root in site.flow.updated() if (place := places.of(root)) is not None])
        passed, specs = tuple([argument.passed for argument in given]), tuple([argument.spec for argument in given])
        loads = tuple(map(keys.index, body.loads))
        call = BlockCall(function, body.block, passed, specs, loads, updated, tuple(results))
        if function not in self.kernels:
            taken = [[places.of(root) for root in site.flow.taken_over(value)] for value in results]
            self.kernels[function] = KernelSignature(
                function,
                call.arguments(site.function),
                tuple(
                    KernelResult(value.spec, min((place for place in candidates if place is not None), default=None))
                    for value, candidates in zip(results, taken, strict=True)
                ),
                call_sites=0,
                source=body.block,
            )
        self.repeat(call, site.function, emitter)
        return call

    def repeat(self, call: BlockCall, flow: FunctionFlow, emitter: Emitter) -> None:
        """Writes a call of a function that is there already.

        Args:
            call: call to write.
            flow: flow of the calling function.
            emitter: emitter of the calling function.

        Raises:
            GraphError: the function's arguments are not those of its call sites before.
        """
        self.kernels[call.function].join(call.arguments(flow), f"block {call.block!r}")
        outside = ["" if isinstance(passed, str) else emitter.name(passed) for passed in call.passed]
        for place in call.loads:
            path = call.passed[place]
            assert isinstance(path, str)
            outside[place] = emitter.parameter(path, call.specs[place])
        kinds = ", ".join([tensor_type(value.spec) for value in call.results])
        types = ", ".join(map(tensor_type, call.specs))
        text = f"call {symbol(call.function)}({', '.join(outside)}) : ({types}) -> ({kinds})"
        if not call.results:
            emitter.line(text)
            return
        name = emitter.new(text, len(call.results))
        for index, value in enumerate(call.results):
            emitter.bind(value, name if len(call.results) == 1 else f"{name}#{index}")

    def _function(self, text: str, body: "_BlockEmitter") -> str:
        """Returns the name of the function of this text, which is written where it is new."""
        key = hashlib.sha256(text.encode()).digest()
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = self._free_name(body.block)
            self._texts.write(f"  func.func private {symbol(name)}{text}")
            for helper in body.called:
                helper.call_sites += 1
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

    def __init__(self, keys: Sequence[int | str], leaves: Mapping[int, Node]) -> None:
        self._places = {key: place for place, key in enumerate(keys)}
        self._leaves = leaves

    def of(self, root: int) -> int | None:
        """Returns the position of a value, given by its number; None where it is no argument."""
        leaf = self._leaves.get(root)
        return self._places.get(root if leaf is None else leaf.attributes[0])


def layer_of(block: str) -> str:
    """Returns a block's name up to its last number: paths in ``layers.3.backward``, too, begin with ``layers.3``."""
    numbered = _NUMBERED.match(block)
    return numbered.group() if numbered else block


def path_in_block(path: str, layer: str) -> str | None:
    """Returns a module path without the numbers of the block's layer; None for a path outside of the layer."""
    inside = path == layer or path.startswith(f"{layer}.")
    return _without_numbers(layer) + path[len(layer) :] if inside else None


def _without_numbers(block: str) -> str:
    return _NUMBER.sub("N", block)


class _Writer:
    """File whose text goes to a function."""

    def __init__(self, write: Write) -> None:
        self.write = write


class _BlockEmitter(Emitter):
    """Emitter of a block's body; a value from outside becomes an argument when it is first used.

    Attributes:
        block: name of the block.
        called: helper function of each call in the body, to be counted where the body becomes a function of its own.
        loads: specs of the parameters that the body reads, by path, in order.
    """

    def __init__(self, caller: Emitter, block: str) -> None:
        self.pieces: list[str] = []
        self._captured: dict[str, Value] = {}
        self.block = block
        self.loads: dict[str, TensorSpec] = {}
        self.called: list[KernelSignature] = []
        super().__init__(self.pieces.append, self, helpers=caller.helpers, overrides=caller.overrides)
        self._caller = caller
        self.leaves = caller.leaves
        self._prefix = layer_of(block)

    def comment(self, path: str) -> str:
        """Returns a module path without the block's numbers, so that alike blocks have equal texts."""
        return path_in_block(path, self._prefix) or super().comment(path)

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
        name = f"%parameter{len(self.loads)}"
        self.loads[path] = spec
        return name

    def arguments(self) -> list[_Given]:
        """Returns the arguments: values, then parameters, which are loaded in the caller; scalars after both."""
        values = [_Given(name, value.spec, value) for name, value in self._captured.items()]
        loads = [_Given(f"%parameter{place}", spec, path) for place, (path, spec) in enumerate(self.loads.items())]
        return sorted([*values, *loads], key=lambda argument: not argument.spec.shape)
