"""Learned positions of patches for a grid of another size: torch's bicubic interpolation, as two matrices."""

import math

import numpy as np

from lang_core import ExecutionContext, Tensor
from transformer_core.layers._embedding import Size

_PLAIN: float = -0.75
_SMOOTH: float = -0.5


def interpolated(ctx: ExecutionContext, positions: Tensor, stored: Size, grid: Size, *, smooth: bool) -> Tensor:
    """Maps positions [1, N, D] of a stored grid to those of another grid, [1, N', D].

    Args:
        ctx: context that computes.
        positions: positions of the patches, row by row.
        stored: rows and columns of these.
        grid: rows and columns of the result.
        smooth: whether the filter is widened where the grid shrinks (torch's ``antialias``).
    """
    ops, size = ctx.ops, positions.shape[2]
    x = ops.cast(ops.reshape(positions, (*stored, size)), "f32")
    down, across = (ops.constant(bicubic_matrix(*sides, smooth=smooth)) for sides in zip(stored, grid, strict=True))
    x = ops.dot_general(down, x, ((1,), (0,)))  # [rows', columns, D]
    x = ops.transpose(ops.dot_general(across, x, ((1,), (1,))), (1, 0, 2))
    return ops.cast(ops.reshape(x, (1, grid[0] * grid[1], size)), positions.dtype)


def bicubic_matrix(old: int, new: int, *, smooth: bool) -> np.ndarray:
    """Returns the weights f32 [new, old] of old values in new ones.

    >>> bicubic_matrix(2, 2, smooth=False).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    matrix = np.zeros((new, old))
    ratio = old / new
    for row in range(new):
        if smooth:
            wide = max(ratio, 1.0)
            centre = ratio * (row + 0.5)
            first, last = max(int(centre - 2 * wide + 0.5), 0), min(int(centre + 2 * wide + 0.5), old)
            weights = [_cubic((place - centre + 0.5) / wide, _SMOOTH) for place in range(first, last)]
            matrix[row, first:last] = np.array(weights) / sum(weights)
        else:
            centre = ratio * (row + 0.5) - 0.5
            for place in range(math.floor(centre) - 1, math.floor(centre) + 3):
                matrix[row, min(max(place, 0), old - 1)] += _cubic(place - centre, _PLAIN)
    return matrix.astype(np.float32)


def _cubic(x: float, a: float) -> float:
    """Computes the cubic convolution kernel (Keys 1981)."""
    x = abs(x)
    if x <= 1:
        return ((a + 2) * x - (a + 3)) * x * x + 1
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a if x < 2 else 0.0
