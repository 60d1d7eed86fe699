"""Sampling against transformers' processors, by its properties, and its errors."""

import doctest
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import generation
from generation import Sampler, SamplingConfig
from generation._filters import keep_top_p, softmax
from lang_core import ConfigError, InputError, VerificationError

_GOLDENS = Path(__file__).with_name("testdata") / "sampling.npz"

_logits = hnp.arrays(
    np.float32, st.integers(1, 23), elements=st.floats(-30, 30, width=32) | st.sampled_from([-1.0, 0.0, 1.0, 2.5])
)
_temperatures = st.floats(0.05, 5)


def _probabilities(config: SamplingConfig, logits: np.ndarray, history: list[int] | None = None) -> np.ndarray:
    return Sampler(config, logits.size).probabilities(logits, history or [])


def test_scores_equal_transformers() -> None:
    with np.load(_GOLDENS, allow_pickle=False) as goldens:
        cases = list(zip(*(goldens[name] for name in ("settings", "logits", "histories", "scores")), strict=True))
    assert len(cases) == 576
    for setting, logits, history, expected in cases:
        temperature, top_k, top_p, min_p, penalty = setting.tolist()
        config = SamplingConfig(
            temperature=temperature, top_k=int(top_k), top_p=top_p, min_p=min_p, repetition_penalty=penalty
        )
        scores = Sampler(config, logits.size).scores(logits, history)
        if np.unique(logits).size < logits.size:  # which of equal scores top_p keeps is chance with PyTorch
            scores, expected = np.sort(scores), np.sort(expected)
        np.testing.assert_array_equal(np.isneginf(scores), np.isneginf(expected), err_msg=str(config))
        np.testing.assert_allclose(scores, expected, rtol=2e-7, err_msg=str(config))


@settings(deadline=None)
@given(logits=_logits, temperature=_temperatures)
def test_top_p_of_zero_is_greedy(logits: np.ndarray, temperature: float) -> None:
    sampler = Sampler(SamplingConfig(temperature=temperature, top_p=0.0), logits.size)
    assert sampler(logits, []) == (logits / np.float32(temperature)).argmax()


@settings(deadline=None)
@given(
    logits=_logits,
    history=st.lists(st.integers(0, 30), max_size=9),
    temperature=st.just(0.0) | _temperatures,
    top_k=st.integers(0, 30),
    top_p=st.floats(0, 1),
    min_p=st.floats(0, 1),
    penalty=st.floats(0.5, 2),
)
def test_probabilities_sum_to_one_and_the_token_is_likely(
    logits: np.ndarray,
    history: list[int],
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    penalty: float,
) -> None:
    config = SamplingConfig(
        temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, repetition_penalty=penalty, seed=5
    )
    probabilities = _probabilities(config, logits, history)
    assert probabilities.sum() == pytest.approx(1, abs=1e-5)
    assert probabilities.dtype == np.float32
    token = Sampler(config, logits.size)(logits, history)
    assert np.isfinite(Sampler(config, logits.size).scores(logits, history)[token])


@settings(deadline=None)
@given(logits=_logits, temperature=_temperatures, k=st.integers(1, 30))
def test_top_k_keeps_k_and_ties(logits: np.ndarray, temperature: float, k: int) -> None:
    sampler = Sampler(SamplingConfig(temperature=temperature, top_k=k), logits.size)
    scores = (logits / np.float32(temperature)).astype(np.float32)
    kept = np.isfinite(sampler.scores(logits, []))
    edge = np.sort(scores)[::-1][min(k, logits.size) - 1]
    np.testing.assert_array_equal(kept, scores >= edge)
    assert kept.sum() >= min(k, logits.size)


@settings(deadline=None)
@given(logits=_logits, p=st.floats(0.01, 0.99))
def test_top_p_keeps_the_smallest_set(logits: np.ndarray, p: float) -> None:
    kept = np.isfinite(Sampler(SamplingConfig(temperature=1, top_p=p), logits.size).scores(logits, []))
    exps = np.exp(logits.astype(np.float64) - logits.max())
    full = exps / exps.sum()
    assert full[kept].sum() >= p - 1e-6
    assert full[kept].sum() - full[kept].min() < p + 1e-6  # without the least likely it would not suffice
    assert full[kept].min() >= full[~kept].max(initial=0) * (1 - 1e-6)


@settings(deadline=None)
@given(logits=_logits, p=st.floats(0, 0.999), scale=st.floats(0.01, 4))
def test_top_p_sorts_few_tokens_and_keeps_what_sorting_all_would(logits: np.ndarray, p: float, scale: float) -> None:
    scores = logits * np.float32(scale)
    order = np.argsort(-scores, kind="stable")[::-1]
    cumulative = softmax(scores)[order].cumsum(dtype=np.float64).astype(np.float32)
    expected = np.zeros(scores.shape, np.bool_)
    expected[order[cumulative > np.float32(1 - p)]] = True
    expected[order[-1]] = True
    np.testing.assert_array_equal(keep_top_p(scores, p), expected)


@settings(deadline=None)
@given(logits=_logits, p=st.floats(0.01, 1))
def test_min_p_keeps_what_is_likely_enough(logits: np.ndarray, p: float) -> None:
    kept = np.isfinite(Sampler(SamplingConfig(temperature=1, min_p=p), logits.size).scores(logits, []))
    ratios = np.exp(logits.astype(np.float64) - logits.max())
    assert kept[ratios >= p * (1 + 1e-5)].all()
    assert not kept[ratios < p * (1 - 1e-5)].any()
    assert kept[logits.argmax()]


def test_greedy_takes_the_lowest_index_on_ties() -> None:
    logits = np.array([1, 4, -2, 4, 3], np.float32)
    assert Sampler(SamplingConfig(), 5)(logits, []) == 1


def test_greedy_uses_the_penalty() -> None:
    logits = np.array([1.0, 4.0, 3.0], np.float32)
    assert Sampler(SamplingConfig(repetition_penalty=2.0), 3)(logits, [1]) == 2
    assert Sampler(SamplingConfig(repetition_penalty=2.0), 3)(-logits, [0]) == 0


def test_penalty_counts_a_token_once_and_leaves_the_logits_alone() -> None:
    logits = np.array([3.0, -1.0, 2.0], np.float32)
    scores = Sampler(SamplingConfig(repetition_penalty=2.0), 3).scores(logits, [0, 1, 0, 1, 0])
    np.testing.assert_array_equal(scores, np.array([1.5, -2.0, 2.0], np.float32))
    np.testing.assert_array_equal(logits, np.array([3.0, -1.0, 2.0], np.float32))


def test_history_may_hold_ids_above_the_vocabulary() -> None:
    logits = np.array([3.0, 2.0], np.float32)
    scores = Sampler(SamplingConfig(repetition_penalty=2.0), 2).scores(logits, [7, 0])
    np.testing.assert_array_equal(scores, np.array([1.5, 2.0], np.float32))


def _drawn(seed: int, count: int = 200) -> list[int]:
    sampler = Sampler(SamplingConfig(temperature=1.0, seed=seed), 7)
    logits = np.log(np.array([1, 2, 3, 4, 5, 6, 7], np.float32))
    return [sampler(logits, []) for _ in range(count)]


def test_seed_decides() -> None:
    assert _drawn(3) == _drawn(3)
    assert _drawn(3) != _drawn(4)


def test_stream_of_a_seed_is_stable() -> None:
    assert _drawn(3, count=12) == [1, 3, 6, 5, 1, 4, 4, 2, 5, 2, 4, 4]


def test_frequencies_follow_probabilities() -> None:
    counts = np.bincount(_drawn(11, count=20_000), minlength=7)
    expected = 20_000 * np.arange(1, 8) / 28
    chi_squared = ((counts - expected) ** 2 / expected).sum()
    assert chi_squared < 22.5  # 6 degrees of freedom: exceeded once in 1000 seeds


def test_tiny_temperature_is_greedy_not_nan() -> None:
    logits = np.array([-1e30, 3e38, 2e38], np.float32)
    assert Sampler(SamplingConfig(temperature=1e-40, top_p=0.9), 3)(logits, []) == 1
    assert Sampler(SamplingConfig(temperature=1e-60, min_p=0.1), 3)(logits, []) == 1


def test_one_token_vocabulary() -> None:
    config = SamplingConfig(temperature=0.7, top_k=3, top_p=0.1, min_p=1.0)
    assert Sampler(config, 1)(np.array([-5], np.float32), [0, 0]) == 0


@pytest.mark.parametrize(("value", "shown"), [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "-inf")])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_finite(value: float, shown: str, temperature: float) -> None:
    logits = np.array([0, 1, value, value, 2], np.float32)
    with pytest.raises(
        VerificationError, match=rf"2 of 5 logits are not finite, the first is {shown} for token 2: look for NaN"
    ):
        Sampler(SamplingConfig(temperature=temperature), 5)(logits, [])


@pytest.mark.parametrize(
    ("logits", "described"),
    [(np.zeros(4, np.float32), r"float32\[4\]"), (np.zeros((1, 5), np.float32), r"float32\[1, 5\]"),
     (np.zeros(5), r"float64\[5\]")],
)  # fmt: skip
def test_logits_of_another_vocabulary(logits: np.ndarray, described: str) -> None:
    with pytest.raises(VerificationError, match=described + r", expected float32\[5\]: the model's output is not"):
        Sampler(SamplingConfig(), 5)(logits, [])


def test_negative_id_in_history() -> None:
    with pytest.raises(InputError, match="token id -2 in the history is negative: ids count from 0"):
        Sampler(SamplingConfig(repetition_penalty=1.5), 3)(np.zeros(3, np.float32), [1, -2])


def test_penalty_that_overflows() -> None:
    sampler = Sampler(SamplingConfig(repetition_penalty=1e-39), 3)
    with pytest.raises(ConfigError, match=r"repetition_penalty=1e-39 takes the logit 2\.0 of token 1 out of .* f32"):
        sampler(np.array([0, 2, 1], np.float32), [1, 2])


@pytest.mark.parametrize(
    ("field", "value", "needed"),
    [
        ("temperature", -0.1, r"at least 0 \(0 is greedy\)"),
        ("temperature", float("nan"), "a finite number"),
        ("temperature", "hot", "a finite number"),
        ("top_k", -1, r"an integer of at least 0 \(0 is off\)"),
        ("top_k", 2.0, r"an integer of at least 0 \(0 is off\)"),
        ("top_p", 1.01, r"between 0 and 1 \(1 is off\)"),
        ("top_p", None, "a finite number"),
        ("min_p", -0.5, r"between 0 and 1 \(0 is off\)"),
        ("min_p", True, "a finite number"),
        ("repetition_penalty", 0.0, r"above 0 \(1 is off\)"),
        ("repetition_penalty", float("inf"), "a finite number"),
        ("seed", -3, "an integer of at least 0"),
        ("seed", False, "an integer of at least 0"),
    ],
)
def test_config_names_the_setting(field: str, value: object, needed: str) -> None:
    with pytest.raises(ConfigError, match=rf"{field}={value!r} is out of range: give a value that is {needed}"):
        SamplingConfig(**{field: value})  # pyright: ignore[reportArgumentType]


def test_doctest_of_the_package() -> None:
    assert doctest.testmod(generation).failed == 0
