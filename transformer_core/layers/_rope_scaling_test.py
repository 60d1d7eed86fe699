import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer_core.layers._rope_scaling import (
    DynamicScaling,
    LinearScaling,
    Llama3Scaling,
    LongropeScaling,
    NoScaling,
    ProportionalScaling,
    YarnScaling,
    longrope_attention_factor,
    plain_frequencies,
    yarn_attention_factor,
)

SIZES = st.integers(1, 40).map(lambda half: 2 * half)
BASES = st.floats(2, 1e7)
FACTORS = st.floats(1, 64)
LENGTHS = st.integers(1, 100_000)


@given(BASES, SIZES)
def test_plain_frequencies_fall_from_one_towards_one_over_the_base(base, rotated):
    actual = plain_frequencies(base, rotated)
    assert actual.shape == (rotated // 2,)
    assert actual[0] == 1
    np.testing.assert_allclose(actual[1:], actual[:-1] * base ** (-2 / rotated), rtol=1e-12)


@given(BASES, SIZES, LENGTHS)
def test_factor_one_changes_nothing(base, rotated, length):
    plain = plain_frequencies(base, rotated)
    ones = (1.0,) * (rotated // 2)
    for scaling in (
        NoScaling(),
        LinearScaling(1.0),
        ProportionalScaling(1.0),
        Llama3Scaling(1.0, 1.0, 4.0, 64),
        YarnScaling(1.0, 64, 32.0, 1.0, 1.0, True),
        LongropeScaling(ones, ones, 64, 1.0),
        DynamicScaling(5.0, 100_000),  # not beyond the trained length
    ):
        np.testing.assert_allclose(scaling.frequencies(base, rotated, length), plain, rtol=1e-14)


@given(BASES, SIZES, FACTORS, st.integers(16, 10_000), st.booleans())
def test_bands_lie_between_the_plain_and_the_fully_stretched_ones(base, rotated, factor, original, truncate):
    plain = plain_frequencies(base, rotated)
    for scaling in (
        Llama3Scaling(factor, 1.0, 4.0, original),
        YarnScaling(factor, original, 32.0, 1.0, 1.0, truncate),
    ):
        actual = scaling.frequencies(base, rotated, 1)
        assert (actual <= plain * (1 + 1e-12)).all()
        assert (actual >= plain / factor * (1 - 1e-12)).all()


@given(BASES, SIZES, FACTORS, st.integers(1, 4096), st.integers(0, 100_000))
def test_dynamic_is_the_plain_one_with_a_greater_base(base, rotated, factor, trained, beyond):
    length = trained + beyond
    actual = DynamicScaling(factor, trained).frequencies(base, rotated, length)
    if rotated == 2:
        assert actual == 1
        return
    grown = base * (factor * length / trained - (factor - 1)) ** (rotated / (rotated - 2))
    np.testing.assert_allclose(actual, plain_frequencies(grown, rotated), rtol=1e-9)


def test_llama3_keeps_short_waves_and_stretches_long_ones():
    plain = plain_frequencies(500000.0, 128)
    actual = Llama3Scaling(8.0, 1.0, 4.0, 8192).frequencies(500000.0, 128, 1)
    waves = 2 * np.pi / plain
    np.testing.assert_allclose(actual[waves < 8192 / 4], plain[waves < 8192 / 4])
    np.testing.assert_allclose(actual[waves > 8192], plain[waves > 8192] / 8)
    assert ((waves >= 8192 / 4) & (waves <= 8192)).sum() >= 3


def test_longrope_switches_past_the_original_length():
    scaling = LongropeScaling((1.0, 2.0), (3.0, 4.0), 16, 1.19)
    plain = plain_frequencies(100.0, 4)
    np.testing.assert_allclose(scaling.frequencies(100.0, 4, 16), plain / [1, 2])
    np.testing.assert_allclose(scaling.frequencies(100.0, 4, 17), plain / [3, 4])
    assert scaling.attention_factor == 1.19


def test_yarn_survives_a_ramp_without_width():
    actual = YarnScaling(4.0, 1_000_000, 3.0, 2.9, 1.0, False).frequencies(10000.0, 8, 1)
    assert np.isfinite(actual).all()


@pytest.mark.parametrize(
    ("factor", "mscale", "mscale_all_dim", "expected"),
    [
        (40.0, 0.0, 0.0, 1.3688879454113936),
        (40.0, 1.0, 1.0, 1.0),
        (40.0, 0.7, 0.0, 1.3688879454113936),  # one of the two alone does not count
        (1.0, 2.0, 0.5, 1.0),
    ],
)
def test_yarn_attention_factor(factor, mscale, mscale_all_dim, expected):
    assert yarn_attention_factor(factor, mscale, mscale_all_dim) == pytest.approx(expected, rel=1e-12)


def test_longrope_attention_factor():
    assert longrope_attention_factor(0.5, 4096) == 1.0
    assert longrope_attention_factor(32.0, 4096) == pytest.approx((1 + 5 / 12) ** 0.5)


@given(BASES, SIZES, FACTORS, st.floats(0.01, 1))
def test_a_share_of_the_pairs_turns_as_if_all_did(base, rotated, factor, share):
    actual = ProportionalScaling(share, factor).frequencies(base, rotated, 1)
    turned = int(share * rotated // 2)
    np.testing.assert_allclose(actual[:turned], plain_frequencies(base, rotated)[:turned] / factor, rtol=1e-12)
    assert not actual[turned:].any()
