"""The graph of a bundle's module, with repeated blocks collapsed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from compile_hlo.directions import Signature
from tapeline.analysis.outline import FORMATS, Outline, read_outline
from tapeline.bundle import MODULE

GRAPH_FORMATS: Final = tuple(FORMATS)
"""Names of the forms of a module's graph."""


def graph_text(directory: Path, entry_points: Sequence[Signature], form: str) -> str:
    """Returns the graph of a bundle's module as text.

    Args:
        directory: the bundle's directory.
        entry_points: signatures, for the names of arguments and results.
        form: one of ``GRAPH_FORMATS``.

    Raises:
        InputError: module.mlir is missing or damaged.
    """
    return FORMATS[form](_outline(directory, entry_points))


def write_graphs(directory: Path, entry_points: Sequence[Signature], forms: Sequence[str]) -> None:
    """Writes ``graph.<form>`` into a bundle's directory, in each form."""
    if forms:
        outline = _outline(directory, entry_points)
        for form in forms:
            (directory / f"graph.{form}").write_text(FORMATS[form](outline))


def _outline(directory: Path, entry_points: Sequence[Signature]) -> Outline:
    names = {
        signature.name: (
            [argument.name for argument in signature.arguments],
            [result.name for result in signature.results],
        )
        for signature in entry_points
    }
    return read_outline(directory / MODULE, names)
