"""Bar charts of measurements of several systems."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure

_OURS: Final = "#08519c"
_PEERS: Final = "#bdbdbd"


class Bar(NamedTuple):
    """Bar of a system.

    Attributes:
        name: name of the system.
        median: median over rounds.
        least: minimum over rounds.
        most: maximum over rounds.
        peer: whether it is another system than Tapeline.
    """

    name: str
    median: float
    least: float
    most: float
    peer: bool = False


def write_measured_bars(panels: Sequence[tuple[str, str, Sequence[Bar]]], path: Path) -> None:
    """Draws panels below each other: Tapeline dark, peers light, with a line from minimum to maximum.

    Equal input gives equal bytes.

    Args:
        panels: (title, unit, bars) of each panel.
        path: file to write, ``.png`` or ``.svg``.
    """
    heights = [max(len(bars), 1) for _, _, bars in panels]
    figure = Figure(figsize=(8, 0.75 * len(panels) + 0.26 * sum(heights) + 0.2), layout="constrained")
    grid = figure.subplots(len(panels), 1, squeeze=False, gridspec_kw={"height_ratios": heights})
    for axes, (title, unit, bars) in zip(grid[:, 0], panels, strict=True):
        rows = range(len(bars))
        spread = [[bar.median - bar.least for bar in bars], [bar.most - bar.median for bar in bars]]
        axes.barh(
            rows,
            [bar.median for bar in bars],
            xerr=spread,
            color=[_PEERS if bar.peer else _OURS for bar in bars],
            height=0.7,
            error_kw={"ecolor": "#636363", "elinewidth": 1, "capsize": 2},
        )
        for row, bar in zip(rows, bars, strict=True):
            axes.annotate(
                f"{bar.median:,.1f}", (bar.most, row), (4, 0), textcoords="offset points", va="center", fontsize=7
            )
        axes.set_yticks(rows, [bar.name for bar in bars], fontsize=7)
        axes.invert_yaxis()
        axes.set_xlim(left=0)
        axes.margins(x=0.1)
        axes.tick_params(axis="x", labelsize=7)
        axes.set_title(f"{title}: {unit}", loc="left", fontsize=8)
        axes.grid(axis="x", color="#d0d7de", linewidth=0.5)
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    with mpl.rc_context({"svg.hashsalt": "tapeline"}):
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
