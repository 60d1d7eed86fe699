"""Charts: candidates of kernels and measured systems as bars, the loss of a training as a curve."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tapeline.analysis.drawing._bars import Bar, Candidate

_DARK: Final = "#08519c"
_LIGHT: Final = "#9ecae1"
_PEERS: Final = "#bdbdbd"
_BAD: Final = "#cb181d"
_MEAN_OVER: Final = 20


def write_candidate_bars(calls: Sequence[tuple[str, Sequence[Candidate]]], path: Path) -> None:
    """See ``_pictures.write_candidate_bars``."""
    heights = [len(candidates) for _, candidates in calls]
    figure = Figure(figsize=(8, 0.6 * len(calls) + 0.24 * sum(heights) + 0.4), layout="constrained")
    grid = figure.subplots(len(calls), 1, squeeze=False, gridspec_kw={"height_ratios": heights})
    for axes, (title, candidates) in zip(grid[:, 0], calls, strict=True):
        rows = range(len(candidates))
        lengths = [(candidate.seconds or 0.0) * 1e6 for candidate in candidates]
        axes.barh(rows, lengths, color=[_DARK if candidate.chosen else _LIGHT for candidate in candidates], height=0.7)
        for row, candidate in zip(rows, candidates, strict=True):
            if candidate.seconds is None:
                axes.annotate(f" {candidate.note}", (0, row), va="center", fontsize=6, color=_BAD)
        axes.set_yticks(rows, [candidate.name for candidate in candidates], fontsize=7)
        axes.invert_yaxis()
        axes.set_xlim(left=0)
        _finish(axes, title)
    grid[-1, 0].set_xlabel("microseconds per call", fontsize=8)
    _save(figure, path, dpi=150)


def write_measured_bars(panels: Sequence[tuple[str, str, Sequence[Bar]]], path: Path) -> None:
    """See ``_pictures.write_measured_bars``."""
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
            color=[_PEERS if bar.peer else _DARK for bar in bars],
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
        _finish(axes, f"{title}: {unit}")
    _save(figure, path, dpi=150)


def write_loss_curve(losses: Sequence[float], path: Path, title: str) -> None:
    """See ``_pictures.write_loss_curve``."""
    steps = np.arange(1, len(losses) + 1)
    sums = np.cumsum([0.0, *losses])
    first = np.maximum(steps - _MEAN_OVER, 0)
    figure = Figure(figsize=(6, 3), layout="constrained")
    axes = figure.subplots()
    axes.plot(steps, losses, color=_LIGHT, linewidth=0.8, label="of a step")
    axes.plot(steps, (sums[steps] - sums[first]) / (steps - first), color=_DARK, label=f"mean of {_MEAN_OVER}")
    axes.set_yscale("log")
    axes.set_xlabel("step")
    axes.set_ylabel("cross entropy, nats")
    axes.set_title(title, loc="left", fontsize=9)
    axes.grid(color="#d0d7de", linewidth=0.5)
    axes.legend(frameon=False, fontsize=8)
    _save(figure, path)


def write_losses(losses: Mapping[str, Any], path: Path) -> None:
    """See ``_pictures.write_losses``."""
    layers = losses["layers"]
    names = ["other" if row["layer"] is None else str(row["layer"]) for row in layers]
    figure = Figure(figsize=(8, 6), layout="constrained")
    upper, lower = figure.subplots(2, 1)
    upper.bar(names, [row["loss"] for row in layers], color=_DARK)
    upper.set_ylabel("loss, nats per token", fontsize=8)
    upper.set_xlabel("layer", fontsize=8)
    upper.tick_params(labelsize=6)
    bits = upper.twinx()
    bits.plot(names, [8 * row["bytes"] / row["weights"] for row in layers], ".", color=_BAD)
    bits.set_ylim(bottom=0)
    bits.set_ylabel("bits per weight (dots)", fontsize=8, color=_BAD)
    upper.set_title("loss of each layer", loc="left", fontsize=8)
    sizes, values = zip(*losses["frontier"], strict=True)
    lower.plot(sizes, values, color=_LIGHT, label="frontier, predicted")
    lower.plot([losses["bits_per_weight"]], [losses["predicted_loss"]], "o", color=_DARK, label="choice, predicted")
    lower.plot([losses["bits_per_weight"]], [losses["loss"]], "x", color=_BAD, label="choice, measured")
    lower.set_yscale("symlog", linthresh=1e-4)
    lower.set_ylim(bottom=0)
    lower.set_xlabel("bits per weight", fontsize=8)
    lower.set_ylabel("loss, nats per token", fontsize=8)
    lower.grid(color="#d0d7de", linewidth=0.5)
    lower.legend(frameon=False, fontsize=8)
    lower.set_title("size and loss", loc="left", fontsize=8)
    _save(figure, path)


def _finish(axes: Axes, title: str) -> None:
    """Sets title, grid and frame of a panel of horizontal bars."""
    axes.tick_params(axis="x", labelsize=7)
    axes.set_title(title, loc="left", fontsize=8)
    axes.grid(axis="x", color="#d0d7de", linewidth=0.5)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _save(figure: Figure, path: Path, dpi: float | None = None) -> None:
    """Writes a figure without the date and random names that SVG files would have."""
    with mpl.rc_context({"svg.hashsalt": "tapeline"}):
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=dpi or "figure")
