"""Calls of blocks' functions: their conditions, their repeatable parts, and paths within a block."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from compile_dag import Node, Value
from compile_hlo.directions import FunctionFlow, KernelArgument, StretchFlow
from lang_core import TensorSpec

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


class BlockArgument(NamedTuple):
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


class Places:
    """Positions of a function's arguments by the values that they are; a parameter may be several values."""

    def __init__(self, keys: Sequence[int | str], leaves: Mapping[int, Node]) -> None:
        self._places = {key: place for place, key in enumerate(keys)}
        self._leaves = leaves

    def of(self, root: int) -> int | None:
        """Returns the position of a value, given by its number; None if it is not an argument."""
        leaf = self._leaves.get(root)
        return self._places.get(root if leaf is None else leaf.attributes[0])


def layer_of(block: str) -> str:
    """Returns a block's name up to its last number: paths in ``layers.3.backward``, too, begin with ``layers.3``."""
    numbered = _NUMBERED.match(block)
    return numbered.group() if numbered else block


def path_in_block(path: str, layer: str) -> str | None:
    """Returns a module path without the numbers of the block's layer; None for a path outside of the layer."""
    inside = path == layer or path.startswith(f"{layer}.")
    return without_numbers(layer) + path[len(layer) :] if inside else None


def without_numbers(block: str) -> str:
    """Returns a name with N for its numbers."""
    return _NUMBER.sub("N", block)
