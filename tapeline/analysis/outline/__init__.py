"""Outlines: the graph of a module's text with repeated blocks collapsed, as JSON, DOT or SVG.

It does not know bundles.
"""

from collections.abc import Callable
from typing import Final

from tapeline.analysis.outline._functions import PrivateFunction, private_functions
from tapeline.analysis.outline._outline import (
    Box,
    Edge,
    FunctionOutline,
    Item,
    Outline,
    Port,
    Repeat,
    boxes_of,
    without_numbers,
)
from tapeline.analysis.outline._read import read_outline
from tapeline.analysis.outline._svg import outline_svg
from tapeline.analysis.outline._text_formats import outline_dot, outline_json

FORMATS: Final[dict[str, Callable[[Outline], str]]] = {"dot": outline_dot, "svg": outline_svg, "json": outline_json}
"""Functions that format an outline, by the name of the format."""

__all__ = [
    "FORMATS",
    "Box",
    "Edge",
    "FunctionOutline",
    "Item",
    "Outline",
    "Port",
    "PrivateFunction",
    "Repeat",
    "boxes_of",
    "private_functions",
    "read_outline",
    "without_numbers",
]
