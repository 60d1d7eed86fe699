import math

import numpy as np
import pytest
import soxr

from lang_core import InputError
from tapeline.media.audio import resample
from tapeline.media.audio._resampling import resampled_blocks

_RATES = [
    (44_100, 16_000),
    (48_000, 16_000),
    (8_000, 16_000),
    (22_050, 16_000),
    (383_999, 16_000),
    (16_000, 44_100),
    (7, 3),
]


@pytest.mark.parametrize("length", [1, 2, 17, 30_001])
@pytest.mark.parametrize(("source", "target"), _RATES)
def test_samples_are_those_of_librosa(source: int, target: int, length: int) -> None:
    """``librosa.resample`` calls soxr for all samples at once, and adds zeros up to this length."""
    samples = np.random.default_rng(length).standard_normal(length).astype(np.float32)
    resampled = resample(samples, source, target)
    expected = soxr.resample(samples, source, target, quality="HQ")
    assert (resampled.dtype, resampled.shape) == (np.float32, (math.ceil(length * target / source),))
    np.testing.assert_array_equal(resampled[: len(expected)], expected)
    assert not resampled[len(expected) :].any()


@pytest.mark.parametrize(("source", "target"), [(44_100, 16_000), (48_000, 16_000), (8_000, 16_000)])
def test_a_tone_keeps_its_frequency_and_loudness(source: int, target: int) -> None:
    tone = [np.sin(2 * np.pi * 440 * np.arange(rate) / rate).astype(np.float32) for rate in (source, target)]
    inner = slice(target // 10, -target // 10)  # the ends are those of a tone that begins and stops
    np.testing.assert_allclose(resample(tone[0], source, target)[inner], tone[1][inner], atol=1e-4)


@pytest.mark.parametrize(("source", "target"), _RATES)
def test_blocks_of_any_size_give_the_same_samples(source: int, target: int) -> None:
    samples = np.random.default_rng(0).standard_normal(600_000).astype(np.float32)
    blocks = np.split(samples, [1, 7, 7, 5000, 262_144, 300_000])
    whole = resample(samples, source, target)
    np.testing.assert_array_equal(np.concatenate([*resampled_blocks(blocks, source, target)]), whole)


def test_the_same_rate_changes_nothing() -> None:
    samples = np.array([0.5, -1.0], np.float32)
    assert resample(samples, 16_000, 16_000) is samples


def test_a_rate_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match="cannot resample from 0 to 16000 samples per second"):
        resample(np.zeros(3, np.float32), 0, 16_000)
