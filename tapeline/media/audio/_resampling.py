"""Resampling by soxr at its high quality, as ``librosa.load`` and transformers' ``load_audio`` do."""

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import soxr

from lang_core import InputError

_QUALITY: Final = "HQ"
_BLOCK: Final = 2**18  # samples that are resampled at once


def resample(samples: np.ndarray, source: int, target: int) -> np.ndarray:
    """See ``_files.resample``."""
    if source == target:
        return samples
    starts = range(0, len(samples), _BLOCK)
    return np.concatenate([*resampled_blocks((samples[start : start + _BLOCK] for start in starts), source, target)])


def resampled_blocks(blocks: Iterable[np.ndarray], source: int, target: int) -> Iterator[np.ndarray]:
    """Yields blocks f32 [samples] at another rate; the results do not depend on the block size.

    Together they have ceil(samples * target / source) samples.

    Args:
        blocks: f32 [samples] each.
        source: their number per second.
        target: the wanted number per second.

    Raises:
        InputError: a rate is not positive.
    """
    if source < 1 or target < 1:
        raise InputError(f"cannot resample from {source} to {target} samples per second: give rates of 1 or more")
    if source == target:
        yield from blocks
        return
    stream = soxr.ResampleStream(source, target, 1, dtype="float32", quality=_QUALITY)
    samples = results = 0
    for block in blocks:
        samples += len(block)
        resampled = stream.resample_chunk(np.ascontiguousarray(block, np.float32))
        results += len(resampled)
        yield resampled
    last = stream.resample_chunk(np.zeros(0, np.float32), last=True)
    missing = -(-samples * target // source) - results  # soxr rounds to the nearest number
    yield np.pad(last[:missing], (0, max(0, missing - len(last))))
