"""Blocks as private functions: blocks with equal text are written once and called with their own parameters."""

import hashlib
import shutil
import tempfile
from collections.abc import Sequence
from typing import Final

from compile_dag import Value
from compile_hlo.directions import FunctionFlow, KernelResult, KernelSignature
from compile_hlo.emit._block_call import (
    BlockArgument,
    BlockCall,
    CallSite,
    Places,
    layer_of,
    path_in_block,
    without_numbers,
)
from compile_hlo.emit._builder import SsaValue, Write
from compile_hlo.emit._emitter import Emitter
from compile_hlo.emit._overrides import overridable
from compile_hlo.emit._sites import Call
from compile_hlo.emit._types import symbol, tensor_type
from lang_core import TensorSpec

# Bytes of the functions' text that stay in memory; the rest goes to a temporary file.
_TEXT_IN_MEMORY: Final = 1 << 18


@overridable("close_block")
def close_block(body: Emitter, results: Sequence[Value]) -> None:
    """Writes the end of a block's function, which is empty."""
    del body, results


class BlockFunctions:
    """Private functions of a module.

    Args:
        inlined: True if the blocks are written in place: they have signatures, but the module lacks functions of them.

    Attributes:
        kernels: signatures, by name.
    """

    def __init__(self, *, inlined: bool = False) -> None:
        self._inlined: Final = inlined
        self._names: dict[bytes, str] = {}
        self._counts: dict[str, int] = {}  # by a function's name without its own number: the last such number
        self.kernels: dict[str, KernelSignature] = {}
        self._texts = tempfile.SpooledTemporaryFile(_TEXT_IN_MEMORY, "w+")  # noqa: SIM115 - closed by close()

    def call(self, site: CallSite, emitter: Emitter) -> BlockCall:
        """Writes a call in place of the nodes, and the function if it is new.

        Args:
            site: stretch to write.
            emitter: emitter of the calling function.

        Returns:
            The call, to be repeated for stretches that are the same.

        Raises:
            GraphError: the function's arguments are not those of its call sites before.
        """
        call = self._described(site, emitter)
        self.repeat(call, site.function, emitter)
        return call

    def inline(self, site: CallSite, emitter: Emitter) -> None:
        """Writes the nodes in place and notes the call that they would be.

        With a tracer, the nodes are between traces of the tensors that the call would pass and return.

        Args:
            site: stretch to write.
            emitter: emitter of the function around it.

        Raises:
            GraphError: the call's arguments are not those of the calls of the same block before.
        """
        call = self._described(site, emitter)
        tracer, kernel = emitter.tracer, self.kernels[call.function]
        kernel.join(call.arguments(site.function), f"block {call.block!r}")
        if tracer is None:
            emitter.nodes(site.nodes)
            return
        given = [
            SsaValue(emitter.parameter(passed, spec) if isinstance(passed, str) else emitter.name(passed), spec)
            for passed, spec in zip(call.passed, call.specs, strict=True)
        ]
        sources = [passed if isinstance(passed, str) else passed.number for passed in call.passed]
        made = [value.number for value in call.results]
        whole = Call(kernel, call.block, site.nodes[0].line, False, given, sources, made)
        traced = tracer.before(emitter, whole)
        emitter.nodes(site.nodes)
        if traced:
            tracer.after(emitter, traced, [emitter.value(value) for value in call.results])

    def _described(self, site: CallSite, emitter: Emitter) -> BlockCall:
        """Returns the call of a stretch, and writes its function if it is new."""
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
        places = Places(keys, body.leaves)
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
        location = emitter.location
        emitter.locate(call.block)
        self._write_call(call, emitter)
        emitter.location = location

    def _write_call(self, call: BlockCall, emitter: Emitter) -> None:
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
            result = name if len(call.results) == 1 else f"{name}#{index}"
            emitter.bind(value, result)
            emitter.made_by(result, "block")

    def _function(self, text: str, body: "_BlockEmitter") -> str:
        """Returns the name of the function of this text, which is written if it is new."""
        key = hashlib.sha256(text.encode()).digest()
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = self._free_name(body.block)
            if not self._inlined:
                self._texts.write(f"  func.func private {symbol(name)}{text}")
                for helper in body.called:
                    helper.call_sites += 1
        return name

    def _free_name(self, block: str) -> str:
        """Returns the block's name without its numbers, and with a number of its own if that is taken."""
        base = f"block.{without_numbers(block)}"
        count = self._counts.get(base, 1)
        name = base if count == 1 else f"{base}.{count}"
        while name in self.kernels:
            count += 1
            name = f"{base}.{count}"
        self._counts[base] = count
        return name

    def end(self, write: Write) -> None:
        """Writes the functions."""
        self._texts.seek(0)
        shutil.copyfileobj(self._texts, _Writer(write))
        self.close()

    def close(self) -> None:
        """Closes the temporary file."""
        self._texts.close()


class _Writer:
    """File with the text of a function."""

    def __init__(self, write: Write) -> None:
        self.write = write


class _BlockEmitter(Emitter):
    """Emitter of a block's body; a value from outside becomes an argument when it is first used.

    Attributes:
        block: name of the block.
        called: helper function of each call in the body, to be counted if the body becomes a function of its own.
        loads: specs of the parameters that the body reads, by path, in order.
    """

    def __init__(self, caller: Emitter, block: str) -> None:
        self.pieces: list[str] = []
        self._captured: dict[str, Value] = {}
        self.block = block
        self.loads: dict[str, TensorSpec] = {}
        self.called: list[KernelSignature] = []
        super().__init__(
            self.pieces.append,
            self,
            helpers=caller.helpers,
            overrides=caller.overrides,
            locations=caller.locations,
        )
        self._caller = caller
        self.overlaps = caller.overlaps
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
        self._caller.name(value)  # raises if the caller does not know it
        self._captured[name] = value
        self.bind(value, name)
        return name

    def load(self, emitter: Emitter, path: str, spec: TensorSpec) -> str:
        """Makes a parameter an argument."""
        name = f"%parameter{len(self.loads)}"
        self.loads[path] = spec
        return name

    def arguments(self) -> list[BlockArgument]:
        """Returns the arguments: values, then parameters, which are loaded in the caller; scalars after both."""
        values = [BlockArgument(name, value.spec, value) for name, value in self._captured.items()]
        loads = [
            BlockArgument(f"%parameter{place}", spec, path) for place, (path, spec) in enumerate(self.loads.items())
        ]
        return sorted([*values, *loads], key=lambda argument: not argument.spec.shape)
