"""Signatures: the arguments and results of a function that was lowered, as bundles store and sessions take them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from compile_hlo.directions._direction import Direction, WrittenAt
from lang_core import Argument, Axes, TensorSpec, checked_choices


@checked_choices
@dataclass(frozen=True, slots=True)
class LoweredArgument:
    """Argument of a lowered function: its declaration, and the program's uses of its buffer.

    Attributes:
        name: unique among the arguments.
        spec: shape and dtype; rank 0 for a scalar.
        kind: ``"scalar"`` if the caller passes a number rather than a buffer.
        alias_result: name of the result that takes over the buffer, which is donated; None if the caller keeps it.
        effective: IN if the buffer keeps its bytes, OUT if it is written and its old contents are not needed,
            else INOUT; None if it was not recorded.
        guarded: True if the compiled code may write into the buffer although it is not donated: sessions pass a copy.
        in_place: True if the result named by ``alias_result`` is an update of the argument and lies in its buffer;
            otherwise that result has a buffer of its own.
        bounds: least and greatest allowed integer; sessions refuse others.
        copied: True if the author asks for the guard.
        written: place of the write; None if there is none, or it was not recorded.
        axes: per dimension the axis of the bundle's mesh that cuts it; None without a mesh.
    """

    name: str
    spec: TensorSpec
    kind: Literal["tensor", "scalar"] = "tensor"
    alias_result: str | None = None
    effective: Direction | None = "IN"
    guarded: bool = False
    in_place: bool = False
    bounds: tuple[int, int] | None = None
    copied: bool = False
    written: WrittenAt | None = None
    axes: Axes | None = None

    @property
    def donated(self) -> bool:
        """True if the call takes the buffer over: the caller's handle is dead afterwards."""
        return self.alias_result is not None

    @property
    def declared(self) -> Direction:
        """INOUT if a result takes over the buffer, else IN."""
        return "IN" if self.alias_result is None else "INOUT"


@dataclass(frozen=True, slots=True)
class LoweredResult:
    """Result of a lowered function.

    Attributes:
        name: unique among the results.
        spec: shape and dtype.
        axes: per dimension the axis of the bundle's mesh that cuts it; None without a mesh.
    """

    name: str
    spec: TensorSpec
    axes: Axes | None = None


@dataclass(frozen=True, slots=True)
class Signature:
    """Arguments and results of a lowered function, in order.

    Attributes:
        name: the function's name in the module.
        arguments: tensors and scalars.
        results: tensors.
        parameters: paths of the weights that the function reads, if these are not all of the module's.
    """

    name: str
    arguments: tuple[LoweredArgument, ...]
    results: tuple[LoweredResult, ...]
    parameters: tuple[str, ...] | None = None

    @property
    def taken_over(self) -> dict[str, str]:
        """Names of the donated arguments by the name of the result that takes each over."""
        return {
            argument.alias_result: argument.name for argument in self.arguments if argument.alias_result is not None
        }

    @property
    def aliases(self) -> dict[int, int]:
        """Index of the donated argument with the buffer of a result, by the index of the result."""
        names = [result.name for result in self.results]
        arguments = enumerate(self.arguments)
        return {
            names.index(argument.alias_result): i
            for i, argument in arguments
            if argument.alias_result and argument.in_place
        }


def signature_of(
    name: str,
    arguments: Sequence[Argument],
    results: Mapping[str, TensorSpec],
    directions: Sequence[LoweredArgument],
) -> Signature:
    """Builds the signature of a function from its declared arguments and the lowered ones among them, the tensors.

    Args:
        name: name of the function.
        arguments: declared arguments, scalars included.
        results: specs of the results by name.
        directions: tensor arguments with their directions.
    """
    known = {argument.name: argument for argument in directions}
    return Signature(
        name,
        tuple(
            known.get(argument.name)
            or LoweredArgument(argument.name, argument.spec, argument.kind, bounds=argument.bounds)
            for argument in arguments
        ),
        tuple(LoweredResult(result, spec) for result, spec in results.items()),
    )
