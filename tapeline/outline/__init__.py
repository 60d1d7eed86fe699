"""The outline of a module: its graph with repeated blocks collapsed, read from the text, as JSON, DOT or SVG."""

from collections.abc import Callable
from typing import Final

from tapeline.outline._dot import outline_dot
from tapeline.outline._json import outline_json
from tapeline.outline._outline import (
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
from tapeline.outline._read import read_outline
from tapeline.outline._svg import outline_svg

# What `--graph` takes.
FORMATS: Final[dict[str, Callable[[Outline], str]]] = {"dot": outline_dot, "svg": outline_svg, "json": outline_json}

__all__ = [
    "FORMATS",
    "Box",
    "Edge",
    "FunctionOutline",
    "Item",
    "Outline",
    "Port",
    "Repeat",
    "boxes_of",
    "read_outline",
    "without_numbers",
]
