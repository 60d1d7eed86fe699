"""Sound files as samples; the library that decodes them is loaded when the first one is read."""

from pathlib import Path

import numpy as np

from lang_core import load_extra
from tapeline.audio._limits import DEFAULT_LIMITS, AudioLimits


def read_audio(
    source: Path | bytes, rate: int, limits: AudioLimits = DEFAULT_LIMITS, *, name: str | None = None
) -> np.ndarray:
    """Reads a WAV or FLAC file as mono samples f32 [samples] of a rate; channels are averaged.

    Args:
        source: the file, or its bytes.
        rate: samples per second of the result.
        limits: bounds of the file.
        name: what messages call it; by default its path.

    Raises:
        InputError: it cannot be read, is neither WAV nor FLAC, damaged, cut off, without samples, or beyond a bound;
            or a sample is NaN or infinite.
        MissingPackageError: the package soundfile is not installed.
    """
    reading = load_extra("tapeline.audio._reading", "audio", "reading a sound file")
    return reading.read_audio(source, rate, limits, name=name)
