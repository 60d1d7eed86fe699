"""Bar charts of the candidates of kernels."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure

_CHOSEN: Final = "#08519c"
_OTHER: Final = "#9ecae1"
_BAD: Final = "#cb181d"


class Candidate(NamedTuple):
    """Bar of a candidate.

    Attributes:
        name: configuration.
        seconds: time of a call; None if it was not timed.
        chosen: whether it is the chosen one.
        note: reason why it was not timed.
    """

    name: str
    seconds: float | None
    chosen: bool = False
    note: str = ""


def write_candidate_bars(calls: Sequence[tuple[str, Sequence[Candidate]]], path: Path) -> None:
    """Draws the candidates of each call, the chosen one dark; equal input gives equal bytes.

    Args:
        calls: (title, candidates) of each call.
        path: file to write, ``.png`` or ``.svg``.
    """
    heights = [len(candidates) for _, candidates in calls]
    figure = Figure(figsize=(8, 0.6 * len(calls) + 0.24 * sum(heights) + 0.4), layout="constrained")
    grid = figure.subplots(len(calls), 1, squeeze=False, gridspec_kw={"height_ratios": heights})
    for axes, (title, candidates) in zip(grid[:, 0], calls, strict=True):
        rows = range(len(candidates))
        lengths = [(candidate.seconds or 0.0) * 1e6 for candidate in candidates]
        axes.barh(
            rows, lengths, color=[_CHOSEN if candidate.chosen else _OTHER for candidate in candidates], height=0.7
        )
        for row, candidate in zip(rows, candidates, strict=True):
            if candidate.seconds is None:
                axes.annotate(f" {candidate.note}", (0, row), va="center", fontsize=6, color=_BAD)
        axes.set_yticks(rows, [candidate.name for candidate in candidates], fontsize=7)
        axes.invert_yaxis()
        axes.set_xlim(left=0)
        axes.tick_params(axis="x", labelsize=7)
        axes.set_title(title, loc="left", fontsize=8)
        axes.grid(axis="x", color="#d0d7de", linewidth=0.5)
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    grid[-1, 0].set_xlabel("microseconds per call", fontsize=8)
    with mpl.rc_context({"svg.hashsalt": "tapeline"}):
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
