import numpy as np
import pytest

from tapeline.compare import agreement


def _row(*values: float) -> np.ndarray:
    return np.array([values], np.float32)


def test_equal_arrays_agree() -> None:
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    result = agreement(x, x)
    assert (result.max_abs, result.max_rel, result.nmse, result.top1, result.nonfinite_match) == (0, 0, 0, 1, True)
    assert result.cosine == pytest.approx(1)
    assert result.within(0)
    assert set(result.as_json()) == {"max_abs", "max_rel", "cosine", "nmse", "top1", "nonfinite_match"}


def test_figures_by_hand() -> None:
    result = agreement(_row(3, 4, 0), _row(0, 4, 3))
    assert result.max_abs == 3
    assert result.max_rel == pytest.approx(3 / 4)
    assert result.cosine == pytest.approx(16 / 25)
    assert result.nmse == pytest.approx(18 / 25)
    assert result.top1 == 1
    assert not result.within(0.74)
    assert result.within(0.76)


def test_top1_counts_rows() -> None:
    reference = np.array([[[1, 2], [2, 1]], [[1, 2], [2, 1]]], np.float32)
    result = reference.copy()
    result[1, 1] = (0, 1)
    assert agreement(result, reference).top1 == 0.75


def test_nan_and_infinities_must_be_at_the_same_places() -> None:
    reference = _row(1, np.nan, np.inf)
    assert agreement(_row(1, np.nan, np.inf), reference).within(1e-6)
    assert not agreement(_row(1, 0, np.inf), reference).within(1e-6)
    assert not agreement(_row(np.nan, np.nan, np.inf), reference).within(1e-6)


def test_infinities_have_a_sign_and_may_be_nan() -> None:
    reference = _row(1, np.nan, np.inf)
    assert not agreement(_row(1, np.nan, -np.inf), reference).within(1e-6)
    assert agreement(_row(1, np.inf, np.nan), reference).within(1e-6)


def test_zeros_scalars_and_nothing() -> None:
    zeros = np.zeros((2, 3), np.float32)
    assert agreement(zeros, zeros).within(0)
    assert agreement(zeros, zeros).cosine == 1
    assert not agreement(zeros + 1, zeros).within(0.5)
    scalar = np.array(2, np.int32)
    assert agreement(scalar, scalar).within(0)
    nothing = np.zeros((0, 3), np.float32)
    assert agreement(nothing, nothing).within(0)


def test_figures_of_many_rows_are_those_of_all_at_once() -> None:
    random = np.random.default_rng(0)
    reference = random.standard_normal((3, 700, 64)).astype(np.float32)
    actual = reference + random.standard_normal(reference.shape).astype(np.float32) * np.float32(1e-3)
    actual[2, 650, 3], reference[2, 650, 3] = 1, np.inf
    shown = np.isfinite(reference)
    x, y = actual[shown].astype(np.float64), reference[shown].astype(np.float64)
    result = agreement(actual, reference)
    assert result.max_abs == np.abs(x - y).max()
    assert result.max_rel == pytest.approx(np.abs(x - y).max() / np.abs(y).max())
    assert result.cosine == pytest.approx(x @ y / np.sqrt((x @ x) * (y @ y)))
    assert result.nmse == pytest.approx(((x - y) ** 2).sum() / (y @ y))
    assert result.top1 == pytest.approx((actual.argmax(-1) == reference.argmax(-1)).mean())
    assert not result.nonfinite_match
