"""Record of a private function: its signature, joined over its call sites, and its purpose."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from compile_hlo.directions._direction import Direction, KernelArgument, KernelResult, joined
from lang_core import GraphError

Attribute = str | float | bool
"""Attribute of a private function."""


@dataclass(slots=True)
class KernelSignature:
    """Private function of the module, with the common facts of its call sites so far.

    Attributes:
        name: symbol of the function.
        arguments: arguments in the order of the text, tensors before scalars.
        results: results in order.
        call_sites: number of calls in the module's text.
        kind: ``block`` for a block of the model; else the op or group of ops that a helper function computes.
        attributes: constants of a helper function that its tensors' specs do not have, by name.
        source: name of the block, or path of the module, of the first call.
    """

    name: str
    arguments: tuple[KernelArgument, ...]
    results: tuple[KernelResult, ...]
    call_sites: int = 1
    kind: str = "block"
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    source: str = ""

    def join(self, arguments: Sequence[KernelArgument], where: str) -> None:
        """Adds a call site: one call site may read a buffer that another updates.

        Args:
            arguments: arguments as this site passes them.
            where: name of the site, for messages.

        Raises:
            GraphError: the site passes other arguments than those before.
        """
        if [argument.spec for argument in arguments] != [argument.spec for argument in self.arguments]:
            raise GraphError(
                f"kernel {self.name!r} is called at {where} with {_listed(arguments)}, and at {self.call_sites} call "
                f"sites before with {_listed(self.arguments)}: a kernel's tensors are the same at all call sites; give "
                f"the block another name"
            )
        self.call_sites += 1
        self.arguments = tuple(_joined(a, b) for a, b in zip(self.arguments, arguments, strict=True))

    @property
    def signature(self) -> tuple[Direction, ...]:
        """Effective directions of the tensors among the arguments, in order: scalars come after them."""
        return tuple(argument.effective for argument in self.arguments if argument.kind == "tensor")


def _joined(one: KernelArgument, other: KernelArgument) -> KernelArgument:
    declared, effective = joined(one.declared, other.declared), joined(one.effective, other.effective)
    return (
        one if (declared, effective) == (one.declared, one.effective) else KernelArgument(one.spec, declared, effective)
    )


def _listed(arguments: Sequence[KernelArgument]) -> str:
    count = sum(argument.kind == "tensor" for argument in arguments)
    return f"{count} tensors ({', '.join(repr(argument.spec) for argument in arguments)})"
