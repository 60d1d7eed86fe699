"""Several prompts at once against each alone."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from generation import (
    KnownLogits,
    Prediction,
    Sampler,
    SamplingConfig,
    StopRule,
    TokenStep,
    generate_batch,
)
from lang_core import InputError

_VOCABULARY = 23


class _Batch:
    """Keeps what every row has seen, and answers with what follows from all of it; padding must not be written."""

    def __init__(self, batch: int, chunk: int, capacity: int) -> None:
        self.batch, self.chunk, self.capacity = batch, chunk, capacity
        self.caches = [[-1] * capacity for _ in range(batch)]
        self.calls: list[str] = []

    def prefill(self, token_ids: np.ndarray, position: np.ndarray, last: np.ndarray) -> Sequence[Prediction]:
        assert token_ids.shape == (self.batch, self.chunk)
        assert {a.dtype for a in (token_ids, position, last)} == {np.dtype(np.int32)}
        self.calls.append("prefill")
        rows = range(self.batch)
        return [self._append(row, token_ids[row], position[row], last[row] + 1) for row in rows]

    def decode(self, token_ids: np.ndarray, position: np.ndarray) -> Sequence[Prediction]:
        assert token_ids.shape == position.shape == (self.batch,)
        self.calls.append("decode")
        return [self._append(row, [token_ids[row]], position[row], 1) for row in range(self.batch)]

    def _append(self, row: int, token_ids: Any, position: int, count: int) -> KnownLogits:
        assert 0 <= position <= self.capacity - count
        self.caches[row][position : position + count] = [int(token) for token in token_ids[:count]]
        return KnownLogits(_logits(self.caches[row][: position + count]))


def _sampler(seed: int = 0, temperature: float = 0.0, vocabulary: int = _VOCABULARY) -> Sampler:
    return Sampler(SamplingConfig(temperature=temperature, seed=seed), vocabulary)


def _logits(seen: Sequence[int]) -> np.ndarray:
    digest = 0
    for token in seen:
        digest = (digest * 31 + token + 1) % 1_000_003
    return np.random.default_rng(digest).standard_normal(_VOCABULARY).astype(np.float32)


def _alone(prompt: Sequence[int], sampler: Sampler, stop: StopRule) -> list[TokenStep]:
    history, steps = list(prompt), []
    while not steps or not steps[-1].ended:
        prediction = KnownLogits(_logits(history))
        history.append(sampler.choose(prediction, history, prompt_tokens=len(prompt)))
        steps.append(TokenStep(history[-1], prediction, stop.reason(history[-1], len(steps) + 1)))
    return steps


def _by_row(events: Any, rows: int) -> list[list[TokenStep]]:
    steps: list[list[TokenStep]] = [[] for _ in range(rows)]
    for row, step in events:
        steps[row].append(step)
    return steps


_PROMPT = st.lists(st.integers(0, _VOCABULARY - 1), min_size=1, max_size=13)


@given(
    prompts=st.lists(_PROMPT, min_size=1, max_size=4),
    spare=st.integers(0, 2),
    chunk=st.integers(1, 6),
    steps=st.integers(1, 7),
    eos=st.frozensets(st.integers(0, _VOCABULARY - 1), max_size=6),
    temperature=st.sampled_from([0.0, 1.0]),
)
def test_every_row_gives_what_it_gives_alone(
    prompts: list[list[int]], spare: int, chunk: int, steps: int, eos: frozenset[int], temperature: float
) -> None:
    stop = StopRule(eos, steps)
    capacity = max(map(len, prompts)) + steps - 1
    batch = _Batch(len(prompts) + spare, chunk, capacity)
    events = generate_batch(batch, prompts, [_sampler(3, temperature) for _ in prompts], stop)
    for prompt, row in zip(prompts, _by_row(events, len(prompts)), strict=True):
        alone = _alone(prompt, _sampler(3, temperature), stop)
        assert [(s.token_id, s.ended) for s in row] == [(s.token_id, s.ended) for s in alone]
        for mine, theirs in zip(row, alone, strict=True):
            np.testing.assert_array_equal(mine.logits, theirs.logits)
    assert batch.calls.count("prefill") == -(-max(map(len, prompts)) // chunk)


@given(
    prompts=st.lists(st.tuples(_PROMPT, st.integers(1, 7)), min_size=1, max_size=4),
    chunk=st.integers(1, 6),
    eos=st.frozensets(st.integers(0, _VOCABULARY - 1), max_size=6),
)
def test_every_row_may_have_a_limit_of_its_own(
    prompts: list[tuple[list[int], int]], chunk: int, eos: frozenset[int]
) -> None:
    """Also if one fills its cache while others go on."""
    capacity = max(len(prompt) + steps - 1 for prompt, steps in prompts)
    batch = _Batch(len(prompts), chunk, capacity)
    stops = [StopRule(eos, steps) for _, steps in prompts]
    events = generate_batch(batch, [prompt for prompt, _ in prompts], [_sampler() for _ in prompts], stops)
    for (prompt, _), stop, row in zip(prompts, stops, _by_row(events, len(prompts)), strict=True):
        alone = _alone(prompt, _sampler(), stop)
        assert [(s.token_id, s.ended) for s in row] == [(s.token_id, s.ended) for s in alone]


def test_no_call_is_made_once_all_have_ended() -> None:
    batch = _Batch(2, 4, 9)
    assert len(list(generate_batch(batch, [[1, 2], [3]], [_sampler(), _sampler()], StopRule(frozenset(), 3)))) == 6
    assert batch.calls == ["prefill", "decode", "decode"]


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ([], r"0 prompts, and the bundle takes 1 to 2 at once: give as many, or export with batch=1"),
        ([[1]] * 3, r"3 prompts, and the bundle takes 1 to 2 at once: give as many, or export with batch=3"),
        ([[1], []], r"the prompt \(number 2\) has no token: give `prompt` or `token_ids` at least one"),
        ([[1] * 8, [1]], r"a prompt \(number 1\) of 8 tokens and 3 new ones need 10 positions, .* hold 9: .*=10"),
        (
            [[1] * 8],
            r"a prompt of 8 tokens and 3 new ones need 10 positions, the bundle's caches hold 9: ask for fewer",
        ),
    ],
)
def test_what_does_not_fit_is_refused_before_any_call(prompts: list[list[int]], message: str) -> None:
    batch = _Batch(2, 4, 9)
    with pytest.raises(InputError, match=message):
        list(generate_batch(batch, prompts, [_sampler() for _ in prompts], StopRule(frozenset(), 3)))
    assert not batch.calls
