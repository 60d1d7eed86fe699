"""Figures as a picture."""

from collections.abc import Sequence
from pathlib import Path

from tapeline.analysis.drawing import Bar, write_measured_bars
from tools.benching.suites._figures import Panel


def write_chart(panels: Sequence[Panel], path: Path) -> None:
    """Draws the cases of panels that have the column, as bars with their spread."""
    write_measured_bars(
        [
            (
                panel.title,
                panel.column,
                [
                    Bar(case.name, summary.median, summary.minimum, summary.maximum, case.peer)
                    for case in panel.cases
                    if (summary := case.values.get(panel.column)) is not None
                ],
            )
            for panel in panels
        ],
        path,
    )
