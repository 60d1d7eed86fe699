"""Resampling by a windowed sinc in its polyphase form."""

import math
from typing import Final

import numpy as np

from lang_core import InputError

# Those of scipy.signal.resample_poly: zero crossings on each side, and the Kaiser window's beta.
_CROSSINGS: Final = 10
_BETA: Final = 5.0

_ROWS: Final = 2**13  # results that are computed at once


def resample(samples: np.ndarray, source: int, target: int) -> np.ndarray:
    """Changes the rate of samples, as ``scipy.signal.resample_poly`` does.

    Args:
        samples: f32 [samples].
        source: their number per second.
        target: the wanted number per second.

    Returns:
        f32 [ceil(samples * target / source)].

    Raises:
        InputError: a rate is not positive.

    >>> resample(np.ones(6, np.float32), 3, 1).shape
    (2,)
    """
    if source < 1 or target < 1:
        raise InputError(f"cannot resample from {source} to {target} samples per second: give rates of 1 or more")
    common = math.gcd(source, target)
    up, down = target // common, source // common
    if up == down:
        return samples
    half = _CROSSINGS * max(up, down)
    lowpass = up * _lowpass(half, 1 / max(up, down))
    taps = math.ceil(len(lowpass) / up)
    resampled = np.empty(-(-len(samples) * up // down), np.float32)
    for phase in range(min(up, len(resampled))):
        newest, offset = divmod(half + phase * down, up)
        kernel = np.zeros(taps)
        kernel[taps - len(lowpass[offset::up]) :] = lowpass[offset::up][::-1]
        results = resampled[phase::up]
        for start in range(0, len(results), _ROWS):
            stop = min(start + _ROWS, len(results))
            first = newest + 1 - taps + start * down
            piece = _piece(samples, first, first + (stop - start - 1) * down + taps)
            rows = np.lib.stride_tricks.sliding_window_view(piece, taps)[::down]
            results[start:stop] = rows.astype(np.float64) @ kernel
    return resampled


def _piece(samples: np.ndarray, start: int, stop: int) -> np.ndarray:
    """Returns samples of a range that may reach beyond their ends, where they are 0."""
    before = max(0, -start)
    piece = samples[max(0, start) : stop]
    return np.pad(piece, (before, stop - start - before - len(piece)))


def _lowpass(half: int, cutoff: float) -> np.ndarray:
    """Returns a filter f64 [2 * half + 1] whose sum is 1; ``cutoff`` is a fraction of half the rate."""
    taps = np.sinc(cutoff * np.arange(-half, half + 1)) * np.kaiser(2 * half + 1, _BETA)
    return taps / taps.sum()
