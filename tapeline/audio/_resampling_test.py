import math

import numpy as np
import pytest
from scipy.signal import resample_poly

from lang_core import InputError
from tapeline.audio import resample


@pytest.mark.parametrize("length", [1, 2, 17, 30_001])
@pytest.mark.parametrize(
    ("source", "target"),
    [(44_100, 16_000), (48_000, 16_000), (8_000, 16_000), (22_050, 16_000), (96_000, 16_000), (16_000, 44_100), (7, 3)],
)
def test_samples_are_those_of_scipy(source: int, target: int, length: int) -> None:
    samples = np.random.default_rng(length).standard_normal(length).astype(np.float32)
    common = math.gcd(source, target)
    expected = resample_poly(samples.astype(np.float64), target // common, source // common)
    resampled = resample(samples, source, target)
    assert (resampled.dtype, resampled.shape) == (np.float32, expected.shape)
    np.testing.assert_allclose(resampled, expected, atol=1e-6)


def test_more_results_than_are_computed_at_once() -> None:
    samples = np.random.default_rng(0).standard_normal(60_000).astype(np.float32)
    np.testing.assert_allclose(resample(samples, 3, 1), resample_poly(samples.astype(np.float64), 1, 3), atol=1e-6)


def test_the_same_rate_changes_nothing() -> None:
    samples = np.array([0.5, -1.0], np.float32)
    assert resample(samples, 16_000, 16_000) is samples


def test_a_rate_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match="cannot resample from 0 to 16000 samples per second"):
        resample(np.zeros(3, np.float32), 0, 16_000)
