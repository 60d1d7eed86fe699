"""Times of tokens by the attention of a Whisper's alignment heads, as transformers computes them."""

import numpy as np

SECONDS_PER_POSITION = 0.02
"""Seconds of sound per position of the encoder."""


def token_times(weights: np.ndarray, positions: int, width: int) -> np.ndarray:
    """Returns the time f32 [tokens] at which each token begins, in seconds of the window.

    Args:
        weights: f32 [heads, tokens, S'] of attention to the encoder's positions.
        positions: number of positions that hold sound; later ones are left out.
        width: width of the median filter over positions, odd.
    """
    weights = weights[:, :, : max(1, positions)]
    with np.errstate(invalid="ignore", divide="ignore"):  # one token alone has no deviation
        normed = (weights - weights.mean(1, keepdims=True)) / weights.std(1, keepdims=True)
    matrix = median_filtered(normed, width).mean(0)
    texts, times = warped(-matrix.astype(np.float64))
    jumps = np.pad(np.diff(texts), (1, 0), constant_values=1).astype(bool)
    return (times[jumps] * SECONDS_PER_POSITION).astype(np.float32)


def median_filtered(rows: np.ndarray, width: int) -> np.ndarray:
    """Returns the medians of ``width`` neighbours in rows f32 [.., S], mirrored at the ends; short rows as they are."""
    side = width // 2
    if rows.shape[-1] <= side:
        return rows
    padded = np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(side, side)], mode="reflect")
    return np.sort(np.lib.stride_tricks.sliding_window_view(padded, width, axis=-1), axis=-1)[..., side]


def warped(costs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the cheapest path through f64 [tokens, positions]: rows i64 and columns i64, from first to last.

    Dynamic time warping along diagonals; sums are f32, as in transformers.
    """
    rows, columns = costs.shape
    total = np.full((rows + 1, columns + 1), np.inf, np.float32)
    total[0, 0] = 0
    steps = np.full((rows + 1, columns + 1), 2, np.int8)
    for diagonal in range(2, rows + columns + 1):
        i = np.arange(max(1, diagonal - columns), min(rows, diagonal - 1) + 1)
        j = diagonal - i
        both, down, across = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
        step = np.where((both < down) & (both < across), 0, np.where((down < both) & (down < across), 1, 2))
        least = np.choose(step, (both, down, across))
        total[i, j] = (costs[i - 1, j - 1] + least.astype(np.float64)).astype(np.float32)
        steps[i, j] = step
    steps[0, :], steps[:, 0] = 2, 1
    path: list[tuple[int, int]] = []
    i, j = rows, columns
    while i or j:
        path.append((i - 1, j - 1))
        step = steps[i, j]
        i, j = i - (step != 2), j - (step != 1)
    texts, times = np.array(path[::-1]).T
    return texts, times
