"""Spreading of one op over devices: how its loops are cut, and the exchanges between devices."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from lang_core import TensorSpec
from tapeline.analysis.counting._factors import Dims, Factors
from tapeline.analysis.counting._grid import Cuts, DeviceGrid, Layout


class Transfer(NamedTuple):
    """Tensors that devices exchange at one point.

    Attributes:
        kind: ``all-reduce``, ``all-gather`` or ``all-to-all``.
        bytes: bytes of the result on each device.
        cuts: parts of axes along which the devices stand that take part.
    """

    kind: str
    bytes: int
    cuts: Cuts


class Spread(NamedTuple):
    """An op spread over devices.

    Attributes:
        cuts: cuts of each factor.
        operands: layouts that the operands need.
        results: layouts of the results.
        moved: exchanges that bring each operand into its layout.
        summed: exchanges that add up the results.
    """

    cuts: tuple[Cuts, ...]
    operands: tuple[Layout, ...]
    results: tuple[Layout, ...]
    moved: tuple[tuple[Transfer, ...], ...]
    summed: tuple[Transfer, ...]


def spread(
    grid: DeviceGrid,
    factors: Factors,
    layouts: Sequence[Layout],
    operands: Sequence[TensorSpec],
    results: Sequence[TensorSpec],
) -> Spread:
    """Spreads an op.

    A factor is cut as the largest operand that has it is. Loops that operands do not cut are computed whole on each
    device.

    Args:
        grid: the devices.
        factors: the op's factors.
        layouts: layouts of the operands.
        operands: specs of the operands.
        results: specs of the results.
    """
    cuts = _chosen(grid, factors, layouts, operands)
    needed = tuple(_layout(dims, cuts) for dims in factors.operands)
    before = zip(operands, layouts, needed, strict=True)
    moves = tuple(tuple(moved(grid, spec, given, wanted)) for spec, given, wanted in before)
    made = tuple(_layout(dims, cuts) for dims in factors.results)
    added = tuple(sorted(cut for factor in factors.reduced | factors.picked for cut in cuts.get(factor, ())))
    sizes = (grid.local_bytes(spec, layout) for spec, layout in zip(results, made, strict=True))
    summed = tuple(Transfer("all-reduce", size, added) for size in sizes) if added else ()
    return Spread(tuple(cuts.get(i, ()) for i in range(len(factors.sizes))), needed, made, moves, summed)


def moved(grid: DeviceGrid, spec: TensorSpec, given: Layout, wanted: Layout) -> Iterator[Transfer]:
    """Yields the exchanges that bring a tensor from one layout into another; cutting a replicated tensor is free."""
    lost = {cut for before, after in zip(given, wanted, strict=True) for cut in before if cut not in after}
    if not lost:
        return
    elsewhere = {cut for cuts in wanted for cut in cuts}
    gathered, exchanged = tuple(sorted(lost - elsewhere)), tuple(sorted(lost & elsewhere))
    between = tuple(tuple(cut for cut in cuts if cut not in gathered) for cuts in given)
    if exchanged:
        yield Transfer("all-to-all", grid.local_bytes(spec, between), exchanged)
    if gathered:
        yield Transfer("all-gather", grid.local_bytes(spec, between), gathered)


def _chosen(
    grid: DeviceGrid, factors: Factors, layouts: Sequence[Layout], operands: Sequence[TensorSpec]
) -> dict[int, Cuts]:
    cuts: dict[int, Cuts] = {}
    used: set[int] = set()
    order = sorted(range(len(layouts)), key=lambda i: -operands[i].nbytes)
    for i in order:
        for dims, given in zip(factors.operands[i], layouts[i], strict=True):
            for factor, wanted in _distributed(grid, dims, given, factors.sizes).items():
                if factor not in cuts and factor not in factors.kept and not used & set(wanted):
                    cuts[factor] = wanted
                    used.update(wanted)
    return cuts


def _distributed(grid: DeviceGrid, dims: Sequence[int], given: Cuts, sizes: Sequence[int]) -> Mapping[int, Cuts]:
    """Returns which factors of a dimension its cuts fall on: the slowest first, as far as they divide."""
    cuts, rest = dict[int, Cuts](), list(given)
    for factor in dims:
        size = sizes[factor]
        while rest and size % grid.size_of(rest[0]) == 0 and size > 1:
            size //= grid.size_of(rest[0])
            cuts[factor] = (*cuts.get(factor, ()), rest.pop(0))
        if size > 1:
            break
    return cuts


def _layout(dims: Dims, cuts: Mapping[int, Cuts]) -> Layout:
    return tuple(tuple(cut for factor in factors for cut in cuts.get(factor, ())) for factors in dims)
