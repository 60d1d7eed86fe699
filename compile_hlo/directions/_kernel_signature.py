"""A kernel's signature, joined over its call sites."""

from collections.abc import Sequence
from dataclasses import dataclass

from compile_hlo.directions._direction import Direction, KernelArgument, KernelResult, joined
from lang_core import GraphError


@dataclass(slots=True)
class KernelSignature:
    """Private function of the module, with what its call sites have in common so far.

    Attributes:
        name: symbol of the function.
        arguments: arguments in the order of the text, tensors before scalars.
        results: results in order.
        call_sites: number of calls.
    """

    name: str
    arguments: tuple[KernelArgument, ...]
    results: tuple[KernelResult, ...]
    call_sites: int = 1

    def join(self, arguments: Sequence[KernelArgument], where: str) -> None:
        """Adds a call site: one may read what another updates.

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
