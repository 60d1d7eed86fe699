"""Sizes that pictures are resized to, as transformers computes them; sizes are (height, width)."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from lang_core import InputError

Size = tuple[int, int]

_LARGEST: Final = 4096  # side of a picture that is cut into tiles, whatever the settings say


def _exact(size: Size, asked: Mapping[str, int]) -> Size:
    del size
    return asked["height"], asked["width"]


def _shortest(size: Size, asked: Mapping[str, int]) -> Size:
    """Makes the shorter side ``shortest_edge``; the longer one is cut to a whole number."""
    (height, width), short = size, asked["shortest_edge"]
    long = int(short * max(size) / min(size))
    return (long, short) if width <= height else (short, long)


def _shortest_bounded(size: Size, asked: Mapping[str, int]) -> Size:
    """Makes the shorter side ``shortest_edge``, or less if the longer one would exceed ``longest_edge``."""
    (height, width), short, longest = size, asked["shortest_edge"], asked["longest_edge"]
    exact = float(short)
    if max(size) / min(size) * short > longest:
        exact = longest * float(min(size)) / float(max(size))
        short = round(exact)
    if min(size) == short:
        return size
    return (int(exact * height / width), short) if width < height else (short, int(exact * width / height))


def _within(size: Size, asked: Mapping[str, int]) -> Size:
    """Fits the picture into ``max_height`` and ``max_width``, larger or smaller."""
    height, width = size
    ratio = min(asked["max_height"] / height, asked["max_width"] / width)
    return int(height * ratio), int(width * ratio)


RESIZES: Final[Mapping[frozenset[str], Callable[[Size, Mapping[str, int]], Size]]] = {
    frozenset(("height", "width")): _exact,
    frozenset(("shortest_edge",)): _shortest,
    frozenset(("shortest_edge", "longest_edge")): _shortest_bounded,
    frozenset(("max_height", "max_width")): _within,
}
"""Functions of a picture's size and the setting ``size``, by the names in the setting."""


def tiled_size(size: Size, tile: int) -> Size:
    """Returns the size of a picture that is cut into tiles: sides are rounded up to multiples of ``tile``."""
    height, width = size
    ratio = width / height
    if width >= height:
        width = _multiple(width, tile)
        return _multiple(int(width / ratio), tile), width
    height = _multiple(height, tile)
    return height, _multiple(int(height * ratio), tile)


_LONGEST_SHAPE: Final = 200  # times as long as wide


def grid_size(size: Size, factor: int, fewest: int, most: int) -> Size:
    """Returns the size of a picture with sides of multiples of ``factor``, and ``fewest`` to ``most`` pixels in all.

    Raises:
        InputError: it is more than 200 times as long as wide.
    """
    height, width = size
    if max(size) > _LONGEST_SHAPE * min(size):
        raise InputError(
            f"picture of {width} x {height} pixels: expected at most {_LONGEST_SHAPE} times as long as wide: cut it"
        )
    new = round(height / factor) * factor, round(width / factor) * factor
    if math.prod(new) > most:
        shrink = math.sqrt(height * width / most)
        return max(factor, int(height / shrink / factor) * factor), max(factor, int(width / shrink / factor) * factor)
    if math.prod(new) < fewest:
        growth = math.sqrt(fewest / (height * width))
        return math.ceil(height * growth / factor) * factor, math.ceil(width * growth / factor) * factor
    return new


def bounded_size(size: Size, factor: int, box: Size) -> Size:
    """Returns the size of a picture within a box, but for its last patches: sides are rounded up to ``factor``."""
    (height, width), shrink = size, max(size[0] / box[0], size[1] / box[1])
    if shrink > 1:
        height, width = int(height / shrink), int(width / shrink)
    return ((height - 1) // factor + 1) * factor, ((width - 1) // factor + 1) * factor


def best_pinpoint(size: Size, canvases: Sequence[Size]) -> Size:
    """Returns the canvas that keeps most of a picture's pixels, and of these the one with the least margin."""
    (height, width), best, most, least = size, canvases[0], 0, math.inf
    for canvas in canvases:
        scale = min(canvas[1] / width, canvas[0] / height)
        kept = min(int(width * scale) * int(height * scale), width * height)
        wasted = math.prod(canvas) - kept
        if kept > most or (kept == most and wasted < least):
            best, most, least = canvas, kept, wasted
    return best


def fitted_size(size: Size, canvas: Size) -> Size:
    """Returns the largest size of a picture within a canvas."""
    (height, width), by_width, by_height = size, canvas[1] / size[1], canvas[0] / size[0]
    if by_width < by_height:
        return min(math.ceil(height * by_width), canvas[0]), canvas[1]
    return canvas[0], min(math.ceil(width * by_height), canvas[1])


def best_canvas(size: Size, tile: Size, fewest: int, most: int) -> tuple[int, int]:
    """Returns the columns and rows of tiles with the shape nearest to a picture's.

    Of grids of one shape, the first one is taken, and a larger one if the picture has more than half of its pixels.
    """
    (height, width), best, least = size, (1, 1), math.inf
    grids = [(columns, rows) for columns in range(1, most + 1) for rows in range(1, most + 1)]
    for columns, rows in sorted(grids, key=math.prod):
        if not fewest <= columns * rows <= most:
            continue
        apart = abs(width / height - columns / rows)
        if apart < least:
            least, best = apart, (columns, rows)
        elif apart == least and width * height > 0.5 * tile[0] * tile[1] * columns * rows:
            best = columns, rows
    return best


def _longest(size: Size, asked: Mapping[str, int]) -> Size:
    """Makes the longer side ``longest_edge``, and the shorter one even, or one pixel."""
    (height, width), ratio, longest = size, size[1] / size[0], asked["longest_edge"]
    if width >= height:
        height, width = int(longest / ratio), longest
        height += height % 2
    else:
        height, width = longest, int(longest * ratio)
        width += width % 2
    height, width = max(height, 1), max(width, 1)
    ratio = width / height
    if width >= height and width > _LARGEST:
        height, width = int(_LARGEST / ratio), _LARGEST
    elif height > width and height > _LARGEST:
        height, width = _LARGEST, int(_LARGEST * ratio)
    return max(height, 1), max(width, 1)


def _multiple(side: int, tile: int) -> int:
    return math.ceil(side / tile) * tile


TILED_RESIZES: Final[Mapping[frozenset[str], Callable[[Size, Mapping[str, int]], Size]]] = {
    frozenset(("height", "width")): _exact,
    frozenset(("longest_edge",)): _longest,
}
"""The same for pictures that are cut into tiles."""
