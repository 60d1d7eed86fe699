"""Blocks as private functions: blocks that read the same are written once and called with their own parameters."""

import hashlib
import re
import shutil
import tempfile
from collections.abc import Sequence
from typing import Final

from compile_dag import Node, Value
from compile_hlo.emit._emitter import Emitter, Write
from compile_hlo.emit._types import symbol, tensor_type
from lang_core import TensorSpec

# What is kept in memory of the functions' text; the rest goes to a temporary file.
_TEXT_IN_MEMORY: Final = 1 << 18
_NUMBER: Final = re.compile(r"\d+")


class BlockFunctions:
    """The private functions of a module.

    Attributes:
        call_sites: how often each is called.
    """

    def __init__(self) -> None:
        self._names: dict[bytes, str] = {}
        self.call_sites: dict[str, int] = {}
        self._texts = tempfile.SpooledTemporaryFile(_TEXT_IN_MEMORY, "w+")  # noqa: SIM115 - closed by close()

    def call(self, emitter: Emitter, nodes: Sequence[Node], results: Sequence[Value]) -> None:
        """Writes a call that does what the nodes do, and the function where it is new.

        Args:
            emitter: of the calling function.
            nodes: of one stretch of a block, not empty.
            results: of the nodes, those that are used later.
        """
        body = _BlockEmitter(emitter, nodes[0].block)
        body.nodes(nodes)
        body.end("return", results)
        kinds = ", ".join([tensor_type(value.spec) for value in results])
        text = f"({', '.join(body.heads)}) -> ({kinds}) {{\n{''.join(body.pieces)}  }}\n"
        arguments = ", ".join([emitter.name(value) for value in body.captured] + body.load_parameters())
        types = ", ".join([tensor_type(spec) for spec in body.argument_specs()])
        function = self._function(text, nodes[0].block)
        if not results:
            emitter.line(f"call {symbol(function)}({arguments}) : ({types}) -> ()")
            return
        name = emitter.new(f"call {symbol(function)}({arguments}) : ({types}) -> ({kinds})", len(results))
        for index, value in enumerate(results):
            emitter.bind(value, name if len(results) == 1 else f"{name}#{index}")

    def _function(self, text: str, block: str) -> str:
        key = hashlib.sha256(text.encode()).digest()
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = self._free_name(block)
            self._texts.write(f"  func.func private {symbol(name)}{text}")
        self.call_sites[name] = self.call_sites.get(name, 0) + 1
        return name

    def _free_name(self, block: str) -> str:
        """The block's name without its numbers, and a number where that is taken."""
        base = f"block.{_without_numbers(block)}"
        name, count = base, 1
        while name in self.call_sites:
            count += 1
            name = f"{base}.{count}"
        return name

    def end(self, write: Write) -> None:
        """Writes the functions."""
        self._texts.seek(0)
        shutil.copyfileobj(self._texts, _Writer(write))
        self.close()

    def close(self) -> None:
        """Gives up what is kept."""
        self._texts.close()


def _without_numbers(block: str) -> str:
    return _NUMBER.sub("N", block)


class _Writer:
    """A function that takes text, as a file."""

    def __init__(self, write: Write) -> None:
        self.write = write


class _BlockEmitter(Emitter):
    """Emits a block's body; what comes from outside becomes an argument when it is first used."""

    def __init__(self, caller: Emitter, block: str) -> None:
        self.pieces: list[str] = []
        self.heads: list[str] = []
        self.captured: list[Value] = []
        self._loads: list[tuple[str, TensorSpec]] = []
        super().__init__(self.pieces.append, self)
        self._caller = caller
        self.leaves = caller.leaves
        self._prefix = block

    def comment(self, path: str) -> str:
        """A path inside the block is written without the block's numbers, so that alike blocks read alike."""
        inside = path == self._prefix or path.startswith(f"{self._prefix}.")
        return _without_numbers(self._prefix) + path[len(self._prefix) :] if inside else super().comment(path)

    def foreign(self, value: Value) -> str:
        """Makes an argument of a value of the caller's."""
        name = f"%value{len(self.captured)}"
        self._caller.name(value)  # raises where the caller does not know it
        self.captured.append(value)
        self.bind(value, name)
        self.heads.insert(len(self.captured) - 1, f"{name}: {tensor_type(value.spec)}")
        return name

    def load(self, emitter: Emitter, path: str, spec: TensorSpec) -> str:
        """Makes an argument of a parameter."""
        name = f"%parameter{len(self._loads)}"
        self._loads.append((path, spec))
        self.heads.append(f"{name}: {tensor_type(spec)}")
        return name

    def argument_specs(self) -> list[TensorSpec]:
        """In the order of ``heads``: values, then parameters."""
        return [value.spec for value in self.captured] + [spec for _, spec in self._loads]

    def load_parameters(self) -> list[str]:
        """Loads the parameters in the caller."""
        return [self._caller.parameter(path, spec) for path, spec in self._loads]
