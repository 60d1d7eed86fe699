"""Sound files as samples; the libraries that decode and resample are loaded when they are first needed."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from lang_core import load_extra
from tapeline.media.audio._limits import DEFAULT_LIMITS, AudioLimits


def read_audio(
    source: Path | bytes, rate: int, limits: AudioLimits = DEFAULT_LIMITS, *, name: str | None = None
) -> np.ndarray:
    """Reads a WAV or FLAC file as mono samples f32 [samples] of a rate; channels are averaged.

    Args:
        source: the file, or its bytes.
        rate: samples per second of the result.
        limits: bounds of the file.
        name: name for messages; by default the path.

    Raises:
        InputError: it cannot be read, is neither WAV nor FLAC, damaged, cut off, without samples, or beyond a bound;
            or a sample is NaN or infinite.
        MissingPackageError: a package of the extra ``audio`` is not installed.
    """
    reading = load_extra("tapeline.media.audio._reading", "audio", "reading a sound file")
    return reading.read_audio(source, rate, limits, name=name)


def read_blocks(
    source: Path | bytes,
    rate: int,
    limits: AudioLimits = DEFAULT_LIMITS,
    *,
    name: str | None = None,
    check: Callable[[], object] | None = None,
) -> Iterator[np.ndarray]:
    """Yields the samples of ``read_audio`` in blocks f32 [samples]: the file is never decoded as a whole.

    Args:
        source: as for ``read_audio``.
        rate: as for ``read_audio``.
        limits: as for ``read_audio``.
        name: as for ``read_audio``.
        check: called before each block is decoded; its exceptions end the reading.

    Raises:
        InputError: as for ``read_audio``; some blocks may have come before.
        MissingPackageError: a package of the extra ``audio`` is not installed.
    """
    reading = load_extra("tapeline.media.audio._reading", "audio", "reading a sound file")
    return reading.read_blocks(source, rate, limits, name=name, check=check)


def resample(samples: np.ndarray, source: int, target: int) -> np.ndarray:
    """Changes the rate of samples, as librosa does: by soxr at its high quality.

    Args:
        samples: f32 [samples].
        source: their number per second.
        target: the wanted number per second.

    Returns:
        f32 [ceil(samples * target / source)].

    Raises:
        InputError: a rate is not positive.
        MissingPackageError: a package of the extra ``audio`` is not installed.

    >>> resample(np.ones(6, np.float32), 3, 1).shape
    (2,)
    """
    resampling = load_extra("tapeline.media.audio._resampling", "audio", "changing the rate of sound")
    return resampling.resample(samples, source, target)
