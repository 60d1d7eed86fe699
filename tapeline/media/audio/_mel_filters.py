"""Triangular filters on the mel scale in Slaney's form (Auditory Toolbox, 1998), as librosa and transformers have."""

from typing import Final

import numpy as np

_BREAK: Final = 1000.0  # Hz: linear below, logarithmic above
_LINEAR: Final = 3 / 200  # mels per Hz
_BREAK_MELS: Final = _BREAK * _LINEAR
_STEP: Final = np.log(6.4) / 27  # logarithm of the frequencies' ratio per mel


def mel_filters(bins: int, bands: int, highest: float, rate: int) -> np.ndarray:
    """Returns filters f64 [bins, bands] of equal area.

    Args:
        bins: number of frequencies of the spectrum, from 0 to half the rate.
        bands: number of filters.
        highest: frequency in Hz at which the last filter ends.
        rate: samples per second.
    """
    edges = _frequencies(np.linspace(0.0, _mels(highest), bands + 2))
    frequencies = np.linspace(0, rate // 2, bins)
    widths, distances = np.diff(edges), edges[None] - frequencies[:, None]
    rising, falling = -distances[:, :-2] / widths[:-1], distances[:, 2:] / widths[1:]
    return np.maximum(0, np.minimum(rising, falling)) * (2 / (edges[2:] - edges[:-2]))


def _mels(frequency: float) -> float:
    if frequency < _BREAK:
        return frequency * _LINEAR
    return float(_BREAK_MELS + np.log(frequency / _BREAK) / _STEP)


def _frequencies(mels: np.ndarray) -> np.ndarray:
    above = _BREAK * np.exp(_STEP * (mels - _BREAK_MELS))
    return np.where(mels < _BREAK_MELS, mels / _LINEAR, above)
