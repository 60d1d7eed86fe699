"""Charts of the loss of a training."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

_MEAN_OVER: Final = 20


def write_loss_curve(losses: Sequence[float], path: Path, title: str) -> None:
    """Draws the loss of each step, and its mean over the last twenty; equal input gives equal bytes."""
    steps = np.arange(1, len(losses) + 1)
    sums = np.cumsum([0.0, *losses])
    first = np.maximum(steps - _MEAN_OVER, 0)
    figure = Figure(figsize=(6, 3), layout="constrained")
    axes = figure.subplots()
    axes.plot(steps, losses, color="#9ecae1", linewidth=0.8, label="of a step")
    axes.plot(steps, (sums[steps] - sums[first]) / (steps - first), color="#08519c", label=f"mean of {_MEAN_OVER}")
    axes.set_yscale("log")
    axes.set_xlabel("step")
    axes.set_ylabel("cross entropy, nats")
    axes.set_title(title, loc="left", fontsize=9)
    axes.grid(color="#d0d7de", linewidth=0.5)
    axes.legend(frameon=False, fontsize=8)
    with mpl.rc_context({"svg.hashsalt": "tapeline"}):
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
