"""Directions IN, OUT and INOUT, and records of the arguments and results that have one."""

from dataclasses import dataclass
from typing import Literal

from lang_core import TensorSpec, checked_choices

Direction = Literal["IN", "OUT", "INOUT"]
"""Direction of a tensor argument or a result."""


@checked_choices
def joined(one: Direction, other: Direction) -> Direction:
    """Returns the direction of an argument that is used in two ways: reading and writing add up.

    >>> joined("IN", "OUT"), joined("IN", "IN")
    ('INOUT', 'IN')
    """
    return one if one == other else "INOUT"


@checked_choices
@dataclass(frozen=True, slots=True)
class WrittenAt:
    """Place in the program where an argument is written.

    Attributes:
        op: name of the op that writes.
        path: path of the module that ran.
        line: Python source line, as ``file:line``.
        certain: True if the program itself writes. If not, the compiler may make it so: it can find that a computed
            value is the argument after all (``x * 1``), or sort an operand in its own place.
    """

    op: str
    path: str
    line: str
    certain: bool

    def under(self, path: str) -> "WrittenAt":
        """Returns the same place in another module."""
        return self if path == self.path else WrittenAt(self.op, path, self.line, self.certain)

    def __str__(self) -> str:
        return f"{self.op} (at {self.path or 'the root'}, {self.line})"


@checked_choices
@dataclass(frozen=True, slots=True)
class KernelArgument:
    """Argument of a kernel, over all its call sites.

    Attributes:
        spec: shape and dtype; rank 0 is a scalar.
        declared: INOUT if a call site passes a donated argument, which the entry point may write; else IN.
        effective: INOUT if the kernel updates it in place, else IN: a kernel reads all its arguments.
    """

    spec: TensorSpec
    declared: Direction
    effective: Direction

    @property
    def kind(self) -> Literal["tensor", "scalar"]:
        """Kind of the argument: a scalar has rank 0."""
        return "tensor" if self.spec.shape else "scalar"


@dataclass(frozen=True, slots=True)
class KernelResult:
    """Result of a kernel.

    Attributes:
        spec: shape and dtype.
        alias_arg: index of the argument that it is an update of; None if it has a buffer of its own.
    """

    spec: TensorSpec
    alias_arg: int | None = None

    @property
    def direction(self) -> Direction:
        """INOUT if the result takes over an argument, else OUT."""
        return "OUT" if self.alias_arg is None else "INOUT"
