"""Pictures of comparisons: for each call a heat map of errors over blocks."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lang_core import InputError
from tapeline.compare import ComparedTensor, Comparison, error_of

_MOST_STEPS: Final = 8
_DECADES: Final = 4.0  # range of the colours, below and above the tolerance
_OUTSIDE: Final = "(no block)"


def write_picture(comparison: Comparison, path: Path) -> None:
    """See ``_pictures.write_picture``."""
    calls = list(dict.fromkeys((tensor.label.step, tensor.label.entry_point) for tensor in comparison.tensors))[
        :_MOST_STEPS
    ]
    columns = _columns(comparison.tensors)
    grids = [_grid(comparison, call, columns) for call in calls]
    heights = [max(len(rows), 1) for rows, _ in grids]
    figure = Figure(
        figsize=(4 + 0.32 * len(columns), 1.6 + 0.24 * sum(heights) + 0.7 * len(grids)), layout="constrained"
    )
    panels = figure.subplots(len(grids), 1, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    image = None
    for (step, entry_point), (rows, values), axes in zip(calls, grids, panels, strict=True):
        image = _strip(axes, rows, columns, values)
        axes.set_title(f"{entry_point}, step {step}", loc="left", fontsize=9)
        _frame(axes, comparison, (step, entry_point), rows, columns)
    if image is not None:
        bar = figure.colorbar(image, ax=list(panels), shrink=0.9)
        bar.set_label(f"log10 of error over tolerance ({comparison.tolerance:.0e})", fontsize=8)
    figure.suptitle(_title(comparison), fontsize=9, x=0.01, ha="left")
    try:
        with mpl.rc_context({"svg.hashsalt": "tapeline"}):
            figure.savefig(path, dpi=130)
    except OSError as error:
        raise InputError(f"{path}: the picture cannot be written: {error.strerror}: choose another file") from None


def _columns(tensors: Sequence[ComparedTensor]) -> list[str]:
    return list(dict.fromkeys(tensor.block or _OUTSIDE for tensor in tensors))


def _row(tensor: ComparedTensor) -> str:
    """Returns the name of a tensor within its block."""
    name = tensor.label.name.removeprefix(f"{tensor.block}.") if tensor.block else tensor.label.name
    return name if tensor.label.when == "during" else f"{name} ({tensor.label.when})"


def _grid(comparison: Comparison, call: tuple[int, str], columns: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """Returns names of rows, and log10 of error over tolerance [rows, columns]; NaN for cells without a tensor."""
    mine = [tensor for tensor in comparison.tensors if (tensor.label.step, tensor.label.entry_point) == call]
    rows = list(dict.fromkeys(map(_row, mine)))
    values = np.full((max(len(rows), 1), len(columns)), np.nan)
    for tensor in mine:
        if tensor.state in ("missing", "extra"):
            continue
        at = rows.index(_row(tensor)), columns.index(tensor.block or _OUTSIDE)
        values[at] = np.fmax(values[at], _power(tensor, comparison.tolerance))
    return rows, values


def _power(tensor: ComparedTensor, tolerance: float) -> float:
    error = error_of(tensor) / (tolerance or 1e-7)
    return float(np.clip(math.log10(error) if error > 0 else -_DECADES, -_DECADES, _DECADES))


def _strip(axes: Axes, rows: Sequence[str], columns: Sequence[str], values: np.ndarray) -> Any:
    axes.set_facecolor("#d0d7de")
    image = axes.imshow(values, cmap="RdBu_r", vmin=-_DECADES, vmax=_DECADES, aspect="auto", interpolation="nearest")
    axes.set_yticks(range(len(rows)), rows, fontsize=7)
    axes.set_xticks(range(len(columns)), columns, fontsize=7, rotation=90)
    axes.set_xticks(np.arange(0.5, len(columns)), minor=True)
    axes.set_yticks(np.arange(0.5, max(len(rows), 1)), minor=True)
    axes.grid(which="minor", color="white", linewidth=0.6)
    axes.tick_params(which="minor", length=0)
    return image


def _frame(
    axes: Axes, comparison: Comparison, call: tuple[int, str], rows: Sequence[str], columns: Sequence[str]
) -> None:
    first = comparison.first
    if first is None or (first.label.step, first.label.entry_point) != call:
        return
    x, y = columns.index(first.block or _OUTSIDE), rows.index(_row(first))
    axes.plot([x - 0.5, x + 0.5, x + 0.5, x - 0.5, x - 0.5], [y - 0.5, y - 0.5, y + 0.5, y + 0.5, y - 0.5], "k-", lw=2)
    axes.annotate("first divergence", (x, y + 0.5), (4, -12), textcoords="offset points", fontsize=7, fontweight="bold")


def _title(comparison: Comparison) -> str:
    count = comparison.count
    agree, differ = count("agrees"), count("differs", "unlike")
    return f"{comparison.actual}\nagainst {comparison.reference}\n{agree} tensors agree, {differ} differ"
