"""IN, OUT, INOUT, and what is known of an argument."""

from dataclasses import dataclass
from typing import Literal

from lang_core import TensorSpec

Direction = Literal["IN", "OUT", "INOUT"]


def joined(one: Direction, other: Direction) -> Direction:
    """What holds where both do: reading and writing add up.

    >>> joined("IN", "OUT"), joined("IN", "IN")
    ('INOUT', 'IN')
    """
    return one if one == other else "INOUT"


@dataclass(frozen=True, slots=True)
class WrittenAt:
    """Where an argument is written.

    Attributes:
        op: what writes.
        path: the module that ran.
        line: the Python source line, as ``file:line``.
        certain: whether the program says so. If not, the compiler may make it so: it can find that a computed value
            is the argument after all (``x * 1``), or sort an operand in its own place.
    """

    op: str
    path: str
    line: str
    certain: bool

    def __str__(self) -> str:
        return f"{self.op} (at {self.path or 'the root'}, {self.line})"


@dataclass(frozen=True, slots=True)
class KernelArgument:
    """An argument of a kernel, over all its call sites.

    Attributes:
        spec: the tensor's; rank 0 is a scalar.
        declared: INOUT where a call site passes what the entry point may write: a donated argument; else IN.
        effective: INOUT where the kernel updates it in place, else IN: a kernel gets no argument that it does not read.
    """

    spec: TensorSpec
    declared: Direction
    effective: Direction

    @property
    def kind(self) -> Literal["tensor", "scalar"]:
        """Rank 0 is a scalar."""
        return "tensor" if self.spec.shape else "scalar"


@dataclass(frozen=True, slots=True)
class KernelResult:
    """A result of a kernel.

    Attributes:
        spec: the tensor's.
        alias_arg: the place of the argument that it is the update of; None where it has a buffer of its own.
    """

    spec: TensorSpec
    alias_arg: int | None = None

    @property
    def direction(self) -> Direction:
        """INOUT where it takes over an argument."""
        return "OUT" if self.alias_arg is None else "INOUT"
