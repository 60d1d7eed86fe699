"""Bias, penalties of presence and frequency, and masks against a plain NumPy reference."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generation import KnownLogits, Sampler, SamplingConfig
from lang_core import ConfigError, InputError

_V = 13
_ids = st.lists(st.integers(0, _V + 2), max_size=12)
_penalty = st.floats(-2, 2, width=32)


def _reference(config: SamplingConfig, logits: np.ndarray, prompt: list[int], generated: list[int]) -> np.ndarray:
    """vLLM's order: bias, repetition (prompt and answer), frequency, presence (answer)."""
    scores = logits.copy()
    for token in range(_V):
        scores[token] += np.float32(config.logit_bias.get(token, 0))
        if token in prompt + generated:
            factor = np.float32(config.repetition_penalty)
            scores[token] = scores[token] * factor if scores[token] < 0 else scores[token] / factor
        scores[token] -= np.float32(config.frequency_penalty) * np.float32(generated.count(token))
        scores[token] -= np.float32(config.presence_penalty) * np.float32(token in generated)
    return scores


@settings(deadline=None)
@given(
    prompt=_ids,
    generated=_ids,
    presence=_penalty,
    frequency=_penalty,
    repetition=st.floats(0.5, 2, width=32),
    bias=st.dictionaries(st.integers(0, _V - 1), st.floats(-100, 100, width=32), max_size=4),
    seed=st.integers(0, 99),
)
def test_scores_equal_the_reference(
    prompt: list[int],
    generated: list[int],
    presence: float,
    frequency: float,
    repetition: float,
    bias: dict[int, float],
    seed: int,
) -> None:
    config = SamplingConfig(
        presence_penalty=presence, frequency_penalty=frequency, repetition_penalty=repetition, logit_bias=bias
    )
    logits = np.random.default_rng(seed).normal(0, 5, _V).astype(np.float32)
    expected = _reference(config, logits, prompt, generated)
    sampler, history = Sampler(config, _V), [*prompt, *generated]
    np.testing.assert_array_equal(sampler.scores(logits, history, prompt_tokens=len(prompt)), expected)
    assert sampler(logits, history, prompt_tokens=len(prompt)) == expected.argmax()
    assert sampler.choose(KnownLogits(logits), history, prompt_tokens=len(prompt)) == expected.argmax()


@settings(deadline=None)
@given(
    allowed=st.lists(st.booleans(), min_size=_V, max_size=_V).filter(any),
    temperature=st.sampled_from([0.0, 0.7, 1e-39]),
    top_k=st.integers(0, 5),
    top_p=st.floats(0, 1),
    min_p=st.floats(0, 1),
    seed=st.integers(0, 99),
)
def test_a_mask_leaves_what_a_smaller_vocabulary_would_choose(
    allowed: list[bool], temperature: float, top_k: int, top_p: float, min_p: float, seed: int
) -> None:
    logits = np.random.default_rng(seed).normal(0, 5, _V).astype(np.float32)
    settings_: Any = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "seed": seed}
    ids = np.flatnonzero(allowed)
    mask = np.array(allowed)
    config = SamplingConfig(**settings_)
    small = Sampler(config, ids.size)(logits[ids], [])
    assert Sampler(config, _V)(logits, [], allowed=mask) == ids[small]
    scores = Sampler(config, _V).scores(logits, [], allowed=mask)
    np.testing.assert_array_equal(scores[ids], Sampler(config, ids.size).scores(logits[ids], []))
    assert np.isneginf(scores[~mask]).all()


def test_a_mask_that_allows_nothing_is_an_error() -> None:
    with pytest.raises(InputError, match="no token may be chosen: the mask forbids all of them; allow at least one"):
        Sampler(SamplingConfig(), 3)(np.zeros(3, np.float32), [], allowed=np.zeros(3, np.bool_))


def test_greedy_choice_reads_logits_once_a_setting_moves_them() -> None:
    prediction = KnownLogits(np.array([1, 3, 2], np.float32))
    assert Sampler(SamplingConfig(logit_bias={2: 5.0}), 3).choose(prediction, []) == 2
    assert Sampler(SamplingConfig(presence_penalty=2), 3).choose(prediction, [0, 1], prompt_tokens=1) == 2
    assert Sampler(SamplingConfig(presence_penalty=2), 3).choose(prediction, [0, 1], prompt_tokens=2) == 1
    assert Sampler(SamplingConfig(), 3).choose(prediction, [], allowed=np.array([True, False, False])) == 0


def test_generation_counts_the_answer_and_not_the_prompt() -> None:
    sampler, history = Sampler(SamplingConfig(frequency_penalty=0.75), 3), [0, 0, 0]
    prediction = KnownLogits(np.array([4, 3.5, 3], np.float32))
    for _ in range(4):
        history.append(sampler.choose(prediction, history, prompt_tokens=3))
    assert history[3:] == [0, 1, 0, 2]


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"presence_penalty": float("nan")}, "presence_penalty=nan is out of range: give a value that is a finite num"),
        ({"frequency_penalty": "1"}, "frequency_penalty='1' is out of range: give a value that is a finite number"),
        ({"logit_bias": {1: "x"}}, r"logit_bias\[1\]='x' is out of range: give a value that is a finite number"),
        ({"logit_bias": {-1: 1.0}}, "a token of logit_bias=-1 is out of range: give a value that is an integer of at"),
    ],
)
def test_config_names_the_setting(settings_: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SamplingConfig(**settings_)


def test_bias_of_a_token_that_is_none() -> None:
    with pytest.raises(ConfigError, match="logit_bias names token 3: expected 0 to 2, the ids of the vocabulary"):
        Sampler(SamplingConfig(logit_bias={3: 1.0}), 3)


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"logit_bias": {1: 3e38}}, r"logit_bias takes the logit 3e\+38 of token 1 out of the range of f32: .* to 0"),
        ({"presence_penalty": -3e38}, r"presence_penalty or frequency_penalty takes the logit 3e\+38 of token 1 out"),
    ],
)
def test_logits_that_overflow(settings_: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Sampler(SamplingConfig(**settings_), 2)(np.array([0, 3e38], np.float32), [1])
