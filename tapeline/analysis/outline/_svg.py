"""Outlines as SVG."""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from typing import Final

from tapeline.analysis.outline._labels import box_lines, box_title, function_title, port_lines, prefix_of, times
from tapeline.analysis.outline._layout import Cell, Point, place
from tapeline.analysis.outline._outline import Box, Edge, FunctionOutline, Item, Outline, Port, Repeat, boxes_of

_CHARACTER: Final = 6.7  # width in pixels, in the font below
_LINE: Final = 15.0
_PADDING: Final = 7.0
_MARGIN: Final = 26.0
_COLUMN: Final = 1400.0  # height in pixels of a full column of functions
_STYLE: Final = (
    "text{font-family:'DejaVu Sans Mono',Menlo,Consolas,monospace;font-size:11px;fill:#1b1f24}"
    ".function{font-size:14px;font-weight:bold}.title{font-weight:bold}.detail{fill:#57606a}"
    ".line{fill:none;stroke:#8c959f;stroke-width:1.3;marker-end:url(#arrow)}"
    ".carried{stroke-dasharray:4 3;stroke:#bc4c00}"
    ".often{font-weight:bold;fill:#bc4c00;font-size:13px}"
)
_ARROW: Final = (
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
    '<path d="M0,0 L8,4 L0,8 z" fill="#8c959f"/></marker></defs>'
)
_PORT, _PLAIN, _WEIGHTS = "#dafbe1", "#ffffff", "#ddf4ff"


@dataclass(slots=True)
class _Shape:
    """Content of a cell: lines of text, or the picture of repeated items."""

    cell: Cell
    lines: Sequence[str]
    fill: str
    round: float = 4.0
    count: int = 1
    inner: "_Picture | None" = None
    hint: str = ""


@dataclass(slots=True)
class _Picture:
    """Shapes and lines of one level.

    Attributes:
        width: width in pixels.
        height: height in pixels.
        shapes: shapes, from top to bottom.
        lines: lines between shapes.
        carried: (source, target) of values that go back to an earlier shape.
    """

    width: float = 0.0
    height: float = 0.0
    shapes: list[_Shape] = field(default_factory=list)
    lines: list[list[Point]] = field(default_factory=list)
    carried: list[tuple[Cell, Cell]] = field(default_factory=list)


def outline_svg(outline: Outline) -> str:
    """Returns the outline in SVG: functions side by side, entry points first; a call has its function's colour."""
    rows: list[str] = []
    x, y, width, height = _MARGIN, 2 * _MARGIN, 0.0, 0.0
    for function in outline.functions:
        picture = _function(function)
        title, room = function_title(function), _LINE * 2
        panel = max(picture.width, len(title) * 8.8)
        if width and y + picture.height > _COLUMN:
            x, y, width = x + width + 2 * _MARGIN, 2 * _MARGIN, 0.0
        rows += _panel(function, title, x, y, panel, picture.height + room)
        rows += _drawn(picture, x + (panel - picture.width) / 2, y + room)
        y += picture.height + room + 3 * _MARGIN
        width, height = max(width, panel), max(height, y)
    if outline.omitted:
        rows.append(f'<text x="{_MARGIN}" y="{height:.0f}">and {outline.omitted} more kernels</text>')
    size = f'width="{x + width + _MARGIN:.0f}" height="{height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    background = '<rect width="100%" height="100%" fill="#f6f8fa"/>'
    return "\n".join([head, f"<style>{_STYLE}</style>", _ARROW, background, *rows, "</svg>", ""])


def _panel(function: FunctionOutline, title: str, x: float, y: float, width: float, height: float) -> Iterator[str]:
    colour = _PLAIN if function.kind == "entry_point" else _colour(function.name)
    yield _rectangle(x - 14, y - 20, width + 28, height + 40, 8, "none", colour if colour != _PLAIN else "#afb8c1", 3)
    yield f'<text class="function" x="{x:.1f}" y="{y:.1f}">{escape(title)}</text>'


def _function(function: FunctionOutline) -> _Picture:
    made: dict[int, list[str]] = {}
    for edge in function.edges:
        if edge.type not in made.setdefault(edge.source, []):
            made[edge.source].append(edge.type)
    edges = {(edge.source, edge.target): edge for edge in function.edges}
    parts = [*function.arguments, *function.items, *function.results]
    return _picture(parts, list(edges.values()), prefix_of(function), made)


def _picture(parts: Sequence[Port | Item], edges: Sequence[Edge], prefix: str, made: dict[int, list[str]]) -> _Picture:
    """Lays out one level; edges to other levels are left to those."""
    owner: dict[int, int] = {}
    for index, part in enumerate(parts):
        inside = [part.id] if isinstance(part, Port) else [box.id for box in boxes_of([part])]
        owner.update(dict.fromkeys(inside, index))
    picture = _Picture(shapes=[_shape(part, edges, prefix, made) for part in parts])
    cells = [shape.cell for shape in picture.shapes]
    forward: list[tuple[int, int]] = []
    back: dict[tuple[int, int], None] = {}
    for edge in edges:
        i, j = owner.get(edge.source), owner.get(edge.target)
        if i is None or j is None:
            continue
        if i < j:
            forward.append((i, j))
        elif edge.carried and (i > j or _is_box(parts[i])):
            back[i, j] = None
    picture.lines = list(place(cells, forward).values())
    picture.carried = [(cells[i], cells[j]) for i, j in back]
    room = 26.0 if picture.carried else 0.0
    edge_of = [cell.x + cell.width / 2 for cell in cells] + [x for line in picture.lines for x, _ in line]
    picture.width = max(edge_of, default=0.0) + room
    picture.height = max((cell.y + cell.height for cell in cells), default=0.0)
    return picture


def _is_box(part: Port | Item) -> bool:
    """Returns whether a part is drawn as one box, even if it repeats."""
    return not isinstance(part, Repeat) or (len(part.items) == 1 and isinstance(part.items[0], Box))


def _shape(part: Port | Item, edges: Sequence[Edge], prefix: str, made: dict[int, list[str]]) -> _Shape:
    if isinstance(part, Port):
        return _labelled(port_lines(part), _PORT, 12.0)
    if isinstance(part, Repeat) and _is_box(part):
        shape = _shape(part.items[0], edges, prefix, made)
        shape.count = part.count
        return shape
    if isinstance(part, Repeat):
        inner = _picture(part.items, edges, prefix, made)
        cell = Cell(inner.width + 4 * _PADDING, inner.height + 4 * _PADDING + _LINE)
        return _Shape(cell, (), "#fff8e5", 8.0, part.count, inner)
    fill = _colour(part.calls) if part.calls else _WEIGHTS if part.parameters else _PLAIN
    shape = _labelled(box_lines(part, prefix, made.get(part.id, [])), fill, 4.0)
    counts = ", ".join(f"{name} {times(count)}" for name, count in part.operations.items())
    shape.hint = f"{box_title(part, '')}: {counts}; {', '.join(part.parameters) or 'no weights'}"
    return shape


def _labelled(lines: Sequence[str], fill: str, round: float) -> _Shape:
    width = max(len(line) for line in lines) * _CHARACTER + 2 * _PADDING
    return _Shape(Cell(width, len(lines) * _LINE + 2 * _PADDING - 3), lines, fill, round)


def _drawn(picture: _Picture, x: float, y: float) -> Iterator[str]:
    for line in picture.lines:
        yield f'<path class="line" d="{_curve([(px + x, py + y) for px, py in line])}"/>'
    for source, target in picture.carried:
        yield _back(source, target, x, y)
    for shape in picture.shapes:
        yield from _drawn_shape(shape, x, y)


def _drawn_shape(shape: _Shape, x: float, y: float) -> Iterator[str]:
    cell = shape.cell
    left, top = x + cell.x - cell.width / 2, y + cell.y
    if shape.count > 1:
        for step in (8, 4):
            yield _rectangle(left + step, top + step, cell.width, cell.height, shape.round, shape.fill)
    yield "<g>"
    if shape.hint:
        yield f"<title>{escape(shape.hint)}</title>"
    yield _rectangle(left, top, cell.width, cell.height, shape.round, shape.fill)
    for number, line in enumerate(shape.lines):
        kind = "title" if number == 0 else "detail"
        at = top + _PADDING + (number + 0.7) * _LINE
        yield f'<text class="{kind}" x="{left + _PADDING:.1f}" y="{at:.1f}">{escape(line)}</text>'
    yield "</g>"
    if shape.inner is not None:
        yield from _drawn(shape.inner, left + 2 * _PADDING, top + 2 * _PADDING + _LINE)
    if shape.count > 1:
        inside = left + _PADDING if shape.inner else left + cell.width + 12
        at = top + _PADDING + 0.7 * _LINE
        yield f'<text class="often" x="{inside:.1f}" y="{at:.1f}">{times(shape.count)}</text>'


def _rectangle(
    x: float, y: float, width: float, height: float, round: float, fill: str, stroke: str = "#57606a", line: float = 1
) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{round}" fill="{fill}" '
        f'stroke="{stroke}" stroke-width="{line}"/>'
    )


def _curve(points: Sequence[Point]) -> str:
    """Returns a path through all points, vertical at each."""
    pieces = [f"M{points[0][0]:.1f},{points[0][1]:.1f}"]
    for (x0, y0), (x1, y1) in pairwise(points):
        middle = (y0 + y1) / 2
        pieces.append(f"C{x0:.1f},{middle:.1f} {x1:.1f},{middle:.1f} {x1:.1f},{y1:.1f}")
    return " ".join(pieces)


def _back(source: Cell, target: Cell, x: float, y: float) -> str:
    """Returns the path of a carried value, from the source's right side up to the target's."""
    x0, y0 = x + source.x + source.width / 2, y + source.y + source.height - 5
    x1, y1 = x + target.x + target.width / 2, y + target.y + source.height / 2
    out = max(x0, x1) + 24
    return (
        f'<path class="line carried" d="M{x0:.1f},{y0:.1f} C{out:.1f},{y0:.1f} {out:.1f},{y1:.1f} {x1:.1f},{y1:.1f}"/>'
    )


def _colour(name: str) -> str:
    """Returns a light colour, the same for the same name."""
    return f"hsl({zlib.crc32(name.encode()) * 47 % 360},70%,85%)"
