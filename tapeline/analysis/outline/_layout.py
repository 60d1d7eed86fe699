"""Layout of cells in layers, from top to bottom, and of the lines between them.

After Sugiyama, Tagawa and Toda, "Methods for Visual Understanding of Hierarchical System Structures" (1981): layers by
the longest path, order by barycentres, long connections through points of their own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

Point = tuple[float, float]

_GAP_X: Final = 22.0
_GAP_Y: Final = 34.0
_SWEEPS: Final = 6


@dataclass(slots=True)
class Cell:
    """Rectangle.

    Attributes:
        width: width in pixels.
        height: height in pixels.
        x: position of the centre in pixels.
        y: position of the upper edge in pixels.
    """

    width: float
    height: float
    x: float = 0.0
    y: float = 0.0


@dataclass(slots=True)
class _Place:
    """Cell in a layer, or a point of a long connection in a layer."""

    cell: Cell
    layer: int
    passes: bool = False
    above: list["_Place"] = field(default_factory=list)
    below: list["_Place"] = field(default_factory=list)


def place(cells: Sequence[Cell], edges: Iterable[tuple[int, int]]) -> dict[tuple[int, int], list[Point]]:
    """Sets the positions of cells, with the upper left corner as the origin, and routes the edges.

    Args:
        cells: cells, each before the cells that use it.
        edges: (source, target), indices of cells, source before target.

    Returns:
        The points of each edge's line.
    """
    edges = sorted(set(edges))
    layers = _layers(len(cells), edges)
    places = [_Place(cell, layer) for cell, layer in zip(cells, layers, strict=True)]
    chains = _connect(places, edges)
    rows = _rows([*places, *(point for chain in chains.values() for point in chain[1:])])
    _order(rows)
    _set_places(rows)
    return {(i, j): _route(chains[i], places[j]) for i, j in edges}


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Returns the layer of each cell: its longest path; a cell without sources is just above its first target."""
    layers = [0] * count
    for source, target in sorted(edges, key=lambda edge: edge[1]):
        layers[target] = max(layers[target], layers[source] + 1)
    fed = {target for _, target in edges}
    nearest: dict[int, int] = {}
    for source, target in edges:
        nearest[source] = min(nearest.get(source, layers[target]), layers[target])
    for index in range(count):
        if index not in fed and index in nearest:
            layers[index] = nearest[index] - 1
    return layers


def _connect(places: Sequence[_Place], edges: Sequence[tuple[int, int]]) -> dict[int, list[_Place]]:
    """Returns for each source its chain of points downward, which all of its targets share."""
    chains: dict[int, list[_Place]] = {}
    for source, target in edges:
        chain = chains.setdefault(source, [places[source]])
        while chain[-1].layer < places[target].layer - 1:
            chain.append(_Place(Cell(2.0, 0.0), chain[-1].layer + 1, passes=True))
            _link(chain[-2], chain[-1])
        _link(chain[places[target].layer - 1 - places[source].layer], places[target])
    return chains


def _link(above: _Place, below: _Place) -> None:
    above.below.append(below)
    below.above.append(above)


def _rows(places: Sequence[_Place]) -> list[list[_Place]]:
    rows: list[list[_Place]] = [[] for _ in range(1 + max((one.layer for one in places), default=0))]
    for one in places:
        rows[one.layer].append(one)
    return rows


def _order(rows: Sequence[list[_Place]]) -> None:
    for row in rows:
        _set_x(row, [0.0] * len(row))
    for sweep in range(_SWEEPS):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wanted = _barycentres(row, up=sweep % 2 == 0)
            order = sorted(range(len(row)), key=lambda i: (wanted[i], i))
            row[:] = [row[i] for i in order]
            _set_x(row, [wanted[i] for i in order])


def _barycentres(row: Sequence[_Place], *, up: bool) -> list[float]:
    centres = []
    for one in row:
        near = one.above if up else one.below
        centres.append(sum(other.cell.x for other in near) / len(near) if near else one.cell.x)
    return centres


def _set_x(row: Sequence[_Place], wanted: Sequence[float]) -> None:
    """Moves cells as near to wanted positions as order and widths allow: the mean of pushing right and left."""
    if not row:
        return
    gaps = [(a.cell.width + b.cell.width) / 2 + _GAP_X for a, b in pairwise(row)]
    right, left = list(wanted), list(wanted)
    for i, gap in enumerate(gaps):
        right[i + 1] = max(right[i + 1], right[i] + gap)
    for i, gap in reversed(list(enumerate(gaps))):
        left[i] = min(left[i], left[i + 1] - gap)
    for one, a, b in zip(row, right, left, strict=True):
        one.cell.x = (a + b) / 2


def _set_places(rows: Sequence[list[_Place]]) -> None:
    for sweep in range(_SWEEPS):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            _set_x(row, _barycentres(row, up=sweep % 2 == 0))
    least = min((one.cell.x - one.cell.width / 2 for row in rows for one in row), default=0.0)
    y = 0.0
    for row in rows:
        height = max((one.cell.height for one in row), default=0.0)
        for one in row:
            one.cell.x -= least
            one.cell.y = y
            if one.passes:
                one.cell.height = height
        y += height + _GAP_Y


def _route(chain: Sequence[_Place], target: _Place) -> list[Point]:
    """Returns the points from the source's lower edge to its part of the target's upper edge."""
    passed = [one.cell for one in chain[1 : target.layer - chain[0].layer]]
    points = [(cell.x, y) for cell in passed for y in dict.fromkeys((cell.y, cell.y + cell.height))]
    first, cell = chain[0].cell, target.cell
    entries = sorted(target.above, key=lambda one: one.cell.x)
    at = entries.index(chain[target.layer - 1 - chain[0].layer])
    spread = min(cell.width - 16.0, 26.0 * (len(entries) - 1))
    x = cell.x + (spread * (at / (len(entries) - 1) - 0.5) if len(entries) > 1 else 0.0)
    return [(first.x, first.y + first.height), *points, (x, cell.y)]
