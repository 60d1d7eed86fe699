"""Factors: the loops of an op, and which dimension of which operand and result goes along with which of them."""

from collections.abc import Sequence
from typing import NamedTuple

from lang_core import TensorSpec
from tapeline.analysis.counting._grid import Layout

Dims = tuple[tuple[int, ...], ...]
"""Per dimension of a tensor its factors, the slowest first; none where the dimension goes along with no loop."""


class Factors(NamedTuple):
    """Loops of one op.

    Attributes:
        operands: factors of the dimensions of each operand.
        results: factors of the dimensions of each result.
        sizes: number of steps of each factor.
        reduced: factors that are summed over, or of which the greatest is taken.
        kept: factors that must not be cut.
        picked: factors that are selected by indices.
    """

    operands: tuple[Dims, ...]
    results: tuple[Dims, ...]
    sizes: tuple[int, ...]
    reduced: frozenset[int]
    kept: frozenset[int]
    picked: frozenset[int]


class FactorBuilder:
    """Makes the factors of one op.

    Args:
        layouts: layouts of the operands.
    """

    def __init__(self, layouts: Sequence[Layout] = ()) -> None:
        self.layouts = layouts
        self.sizes: list[int] = []
        self.reduced: set[int] = set()
        self.kept: set[int] = set()
        self.picked: set[int] = set()

    def new(self, size: int) -> int:
        """Returns a new factor."""
        self.sizes.append(size)
        return len(self.sizes) - 1

    def all(self, sizes: Sequence[int]) -> list[int]:
        """Returns a new factor for each size."""
        return [self.new(size) for size in sizes]

    def sum(self, size: int) -> int:
        """Returns a new factor that is reduced."""
        factor = self.new(size)
        self.reduced.add(factor)
        return factor

    def keep(self, size: int) -> int:
        """Returns a new factor that must not be cut."""
        factor = self.new(size)
        self.kept.add(factor)
        return factor

    def pick(self, size: int) -> int:
        """Returns a new factor that indices pick from."""
        factor = self.new(size)
        self.picked.add(factor)
        return factor

    def build(self, operands: Sequence[Dims], results: Sequence[Dims]) -> Factors:
        """Returns the op's factors."""
        return Factors(
            tuple(operands),
            tuple(results),
            tuple(self.sizes),
            frozenset(self.reduced),
            frozenset(self.kept),
            frozenset(self.picked),
        )


def single(factors: Sequence[int | None]) -> Dims:
    """Returns dimensions of one factor each, or none."""
    return tuple(() if factor is None else (factor,) for factor in factors)


def aligned(factors: Sequence[int], spec: TensorSpec, shape: Sequence[int]) -> Dims:
    """Returns the dimensions of an operand that broadcasts to a shape with these factors."""
    offset = len(shape) - spec.ndim
    pairs = zip(factors[offset:], spec.shape, shape[offset:], strict=True)
    return tuple((factor,) if extent == wanted else () for factor, extent, wanted in pairs)
