"""Pictures; Matplotlib is loaded for the first chart, because its import is slow and large."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from lang_core import InputError, check_extra, load_extra
from tapeline.analysis.drawing._bars import Bar, Candidate
from tapeline.compare import Comparison

_FORMATS: Final = (".png", ".svg", ".pdf")
_PURPOSE: Final = "drawing a picture"


def check_picture(path: Path) -> None:
    """Checks that a picture can be drawn, in the format of this file name.

    Raises:
        InputError: the format is unknown.
        MissingPackageError: Matplotlib is not installed.
    """
    if path.suffix not in _FORMATS:
        raise InputError(f"{path}: unknown format of a picture {path.suffix!r}; available: {', '.join(_FORMATS)}")
    check_extra("plots", _PURPOSE)


def write_picture(comparison: Comparison, path: Path) -> None:
    """Draws the errors of all tensors.

    Blocks are columns, the tensors of a block rows, and calls panels. Blue is within the tolerance, red beyond it, and
    grey lacks a tensor. The first divergence is framed.

    Raises:
        InputError: the file cannot be written.
        MissingPackageError: Matplotlib is not installed.
    """
    load_extra("tapeline.analysis.drawing._heat_strip", "plots", _PURPOSE).write_picture(comparison, path)


def write_candidate_bars(calls: Sequence[tuple[str, Sequence[Candidate]]], path: Path) -> None:
    """Draws the candidates of each call, the chosen one dark; equal input gives equal bytes.

    Args:
        calls: (title, candidates) of each call.
        path: file to write, ``.png`` or ``.svg``.

    Raises:
        MissingPackageError: Matplotlib is not installed.
    """
    _charts().write_candidate_bars(calls, path)


def write_measured_bars(panels: Sequence[tuple[str, str, Sequence[Bar]]], path: Path) -> None:
    """Draws panels below each other: Tapeline dark, peers light, with a line from minimum to maximum.

    Equal input gives equal bytes.

    Args:
        panels: (title, unit, bars) of each panel.
        path: file to write, ``.png`` or ``.svg``.

    Raises:
        MissingPackageError: Matplotlib is not installed.
    """
    _charts().write_measured_bars(panels, path)


def write_loss_curve(losses: Sequence[float], path: Path, title: str) -> None:
    """Draws the loss of each step, and its mean over the last twenty; equal input gives equal bytes.

    Raises:
        MissingPackageError: Matplotlib is not installed.
    """
    _charts().write_loss_curve(losses, path, title)


def write_losses(losses: Mapping[str, Any], path: Path) -> None:
    """Draws the measured loss and the size of each layer, and the frontier of size and loss with the choice.

    Equal input gives equal bytes.

    Args:
        losses: figures of a quantization, as ``report.json`` has them.
        path: file to write, ``.png`` or ``.svg``.

    Raises:
        MissingPackageError: Matplotlib is not installed.
    """
    _charts().write_losses(losses, path)


def _charts() -> ModuleType:
    return load_extra("tapeline.analysis.drawing._charts", "plots", _PURPOSE)
