"""Pictures of the lives in ARCHITECTURE.md: which package has each step, as a way through lanes, in SVG."""

import html
import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

_TITLE: Final = "## Four lives"
_LIFE: Final = re.compile(r"^(### .*)\n\n((?:\|.*\n)+)", re.MULTILINE)
_ROW: Final = re.compile(r"^\| (\d+) \| (.*) \| `([\w/.]+)`.* \|$", re.MULTILINE)
# From the bottom of the layers to the top, so a way that leads down the layers leads to the left.
_LANES: Final = (
    "lang_core",
    "compile_dag",
    "compile_hlo",
    "runtime",
    "transformer_core",
    "generation",
    "run_jax",
    "run_iree",
    "autotune",
    "tapeline",
)
_COLUMN: Final = 34
_LINE: Final = 16
_HEAD: Final = 112
_WIDTH: Final = 760


class Step(NamedTuple):
    """Row of a life's table.

    Attributes:
        number: from 1.
        text: what happens.
        package: top-level package of its file.
    """

    number: int
    text: str
    package: str


class Placed(NamedTuple):
    """Step with its place in the picture.

    Attributes:
        step: that is drawn.
        lines: its text, wrapped.
        x: middle of its mark.
        y: middle of its mark.
    """

    step: Step
    lines: list[str]
    x: int
    y: int


def with_pictures(text: str) -> str:
    """Returns ARCHITECTURE.md's text with a picture above the table of each life."""
    before, title, after = text.partition(_TITLE)
    return before + title + _LIFE.sub(lambda life: f"{life[1]}\n\n{picture(steps_of(life[2]))}\n\n{life[2]}", after)


def steps_of(table: str) -> list[Step]:
    """Returns the steps of a life's table."""
    return [Step(int(number), text, path.split("/")[0]) for number, text, path in _ROW.findall(table)]


def picture(steps: Sequence[Step]) -> str:
    """Returns the way of a life through the packages, as a block of HTML without empty lines."""
    lanes = [lane for lane in _LANES if any(step.package == lane for step in steps)]
    left = len(lanes) * _COLUMN + 16
    placed = list(_place(steps, lanes, left))
    bottom = placed[-1].y + _LINE * len(placed[-1].lines)
    parts = [*_lanes(lanes, bottom), _way(placed), *(_mark(step, left) for step in placed)]
    size = f'viewBox="0 0 {_WIDTH} {bottom + 8}" width="{_WIDTH}" role="img" aria-label="The steps by package"'
    return "\n".join(['<div class="life">', f"<svg {size}>", *parts, "</svg>", "</div>"])


def _place(steps: Sequence[Step], lanes: Sequence[str], left: int) -> Iterator[Placed]:
    y = _HEAD
    for step in steps:
        lines = textwrap.wrap(step.text.replace("`", ""), (_WIDTH - left - 30) // 7)
        yield Placed(step, lines, lanes.index(step.package) * _COLUMN + _COLUMN // 2, y)
        y += max(26, _LINE * len(lines) + 10)


def _lanes(lanes: Sequence[str], bottom: int) -> Iterator[str]:
    for number, lane in enumerate(lanes):
        x = number * _COLUMN + _COLUMN // 2
        yield f'<text transform="translate({x + 4},{_HEAD - 18}) rotate(-60)">{lane}</text>'
        yield f'<line x1="{x}" y1="{_HEAD - 12}" x2="{x}" y2="{bottom}" class="lane"/>'


def _way(placed: Sequence[Placed]) -> str:
    return f'<polyline points="{" ".join(f"{step.x},{step.y}" for step in placed)}" class="way"/>'


def _mark(placed: Placed, left: int) -> str:
    x, y, number = placed.x, placed.y, placed.step.number
    spans = [
        f'<tspan x="{left + 12}" dy="{_LINE if row else 0}">{html.escape(line)}</tspan>'
        for row, line in enumerate(placed.lines)
    ]
    mark = f'<circle cx="{x}" cy="{y}" r="10"/><text x="{x}" y="{y + 4}" class="number">{number}</text>'
    return f'{mark}<text y="{y + 4}">{"".join(spans)}</text>'
