"""A kernel's signature, joined over its call sites."""

from collections.abc import Sequence
from dataclasses import dataclass

from compile_hlo.directions._direction import Direction, KernelArgument, KernelResult, joined
from lang_core import GraphError


@dataclass(slots=True)
class KernelSignature:
    """Private function of the module, with what its call sites have in common so far.

    Attributes:
        name: its symbol.
        arguments: in the order of the text, tensors before scalars.
        results: in order.
        call_sites: how often it is called.
    """

    name: str
    arguments: tuple[KernelArgument, ...]
    results: tuple[KernelResult, ...]
    call_sites: int = 1

    def join(self, arguments: Sequence[KernelArgument], where: str) -> None:
        """Adds a call site: one may read what another updates.

        Args:
            arguments: as this site sees them.
            where: the site, for messages.

        Raises:
            GraphError: the site passes other arguments than those before.
        """
        if [each.spec for each in arguments] != [each.spec for each in self.arguments]:
            raise GraphError(
                f"kernel {self.name!r} is called at {where} with {_listed(arguments)}, and at {self.call_sites} call "
                f"sites before with {_listed(self.arguments)}: a kernel's tensors are the same at all call sites; give "
                f"the block another name"
            )
        self.call_sites += 1
        self.arguments = tuple(_joined(a, b) for a, b in zip(self.arguments, arguments, strict=True))

    @property
    def signature(self) -> tuple[Direction, ...]:
        """The effective directions of the tensors among the arguments, in order: scalars come after them."""
        return tuple(each.effective for each in self.arguments if each.kind == "tensor")


def _joined(one: KernelArgument, other: KernelArgument) -> KernelArgument:
    declared, effective = joined(one.declared, other.declared), joined(one.effective, other.effective)
    return (
        one if (declared, effective) == (one.declared, one.effective) else KernelArgument(one.spec, declared, effective)
    )


def _listed(arguments: Sequence[KernelArgument]) -> str:
    count = sum(each.kind == "tensor" for each in arguments)
    return f"{count} tensors ({', '.join(repr(each.spec) for each in arguments)})"
