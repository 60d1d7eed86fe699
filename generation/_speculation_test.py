"""Speculation never changes what is said, whatever is proposed."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generation import (
    Drafter,
    DraftModel,
    KnownLogits,
    Prediction,
    PromptLookup,
    Sampler,
    SamplingConfig,
    Speculation,
    StopRule,
    generate,
    rows_of,
)
from generation._loop_test import _VOCABULARY, _expected, _logits, _Model
from lang_core import ConfigError


class _Drafting(_Model):
    """A recurrent one has a state of all tokens that were fed, and takes none twice and none out of turn."""

    def __init__(self, chunk: int, capacity: int, recurrent: bool = False) -> None:
        super().__init__(chunk, capacity, recurrent)
        self.state: list[int] = []
        self.kept: list[int] | None = None

    def prefill(self, token_ids: np.ndarray, position: int, last: int) -> KnownLogits:
        self._feed(token_ids[0, : last + 1].tolist(), position)
        return super().prefill(token_ids, position, last)

    def decode(self, token_id: int, position: int) -> KnownLogits:
        self._feed([token_id], position)
        return super().decode(token_id, position)

    def keep_states(self) -> None:
        assert self.recurrent
        self.kept = list(self.state)

    def restore_states(self) -> None:
        assert self.kept is not None
        self.state, self.kept = self.kept, None

    def _feed(self, tokens: list[int], position: int) -> None:
        if self.recurrent:
            assert len(self.state) == position
            self.state += tokens


class _Scoring(_Drafting):
    """Rows beyond ``last`` hold nonsense, and so do their places in the cache."""

    def __init__(self, chunk: int, capacity: int, score_tokens: int, recurrent: bool = False) -> None:
        super().__init__(chunk, capacity, recurrent)
        self.score_tokens = score_tokens

    def score(self, token_ids: np.ndarray, position: int, last: int) -> Sequence[Prediction]:
        assert token_ids.dtype == np.int32
        assert token_ids.shape == (1, self.score_tokens)
        assert 0 <= position <= self.capacity - self.score_tokens
        assert 0 < last < self.score_tokens
        assert -1 not in self.cache[:position]
        self._feed(token_ids[0, : last + 1].tolist(), position)
        self.calls.append(("score", position))
        self.cache[position : position + self.score_tokens] = token_ids[0].tolist()
        rows = np.full((self.score_tokens, _VOCABULARY), np.nan, np.float32)
        for row in range(last + 1):
            rows[row] = _logits(self.cache[: position + row + 1])
        return rows_of(rows)


class _Scripted:
    """Knows what will be said, and errs at one place of each draft (nowhere where that is beyond it)."""

    def __init__(self, all_tokens: Sequence[int], errs_at: Sequence[int]) -> None:
        self.all_tokens, self.errs_at, self.calls = all_tokens, errs_at, 0

    def propose(self, history: Sequence[int], count: int) -> list[int]:
        tokens = list(self.all_tokens[len(history) : len(history) + count])
        at = self.errs_at[self.calls % len(self.errs_at)]
        self.calls += 1
        if at < len(tokens):
            tokens[at] = (tokens[at] + 1) % _VOCABULARY
        return tokens


class _Fixed:
    def __init__(self, tokens: Sequence[int]) -> None:
        self.tokens = tokens

    def propose(self, history: Sequence[int], count: int) -> Sequence[int]:
        return self.tokens  # more than was asked for, and the same whatever was said


def _said(
    model: _Model, prompt: Sequence[int], stop: StopRule, config: SamplingConfig, speculation: Speculation | None
) -> list[tuple[int, bytes, str | None]]:
    steps = generate(model, prompt, Sampler(config, _VOCABULARY), stop, speculation=speculation)
    return [(step.token_id, step.logits.tobytes(), step.ended) for step in steps]


_PROMPTS = st.lists(st.integers(0, _VOCABULARY - 1), min_size=1, max_size=9)
_CONFIGS = st.sampled_from(
    [SamplingConfig(), SamplingConfig(temperature=1.3, top_p=0.9, repetition_penalty=1.2, seed=5)]
)


@settings(deadline=None)
@given(
    prompt=_PROMPTS,
    config=_CONFIGS,
    errs_at=st.lists(st.integers(0, 6), min_size=1, max_size=4),
    new=st.integers(1, 12),
    score_tokens=st.integers(2, 6),
    room=st.integers(0, 7),
    most=st.integers(1, 5) | st.none(),
    eos=st.integers(0, 12),
    recurrent=st.booleans(),
)
def test_whatever_is_proposed_the_same_is_said(
    prompt: list[int],
    config: SamplingConfig,
    errs_at: list[int],
    new: int,
    score_tokens: int,
    room: int,
    most: int | None,
    eos: int,
    recurrent: bool,
) -> None:
    """Drafts wrong at every place, at the end of the caches, with an end token in the midst of a right one."""
    capacity = max(len(prompt) + new - 1, 3, score_tokens) + room
    free = [token for token, *_ in _said(_Model(3, capacity), prompt, StopRule(frozenset(), new), config, None)]
    stop = StopRule(frozenset(free[eos : eos + 1]), new)
    expected = _said(_Model(3, capacity), prompt, stop, config, None)
    model = _Scoring(3, capacity, score_tokens, recurrent)
    speculation = Speculation(model, _Scripted([*prompt, *free], errs_at), min(most or 99, score_tokens - 1))
    assert _said(model, prompt, stop, config, speculation) == expected
    assert 0 <= speculation.accepted <= speculation.drafted
    calls = [(name, position) for name, position in model.calls if name != "prefill" and position >= len(prompt)]
    if recurrent:  # near the end of the caches, accepted tokens are fed again one by one
        assert len({position for name, position in calls if name == "decode"}) <= len(expected)
        return
    most_said = 1 + speculation.accepted + len(calls)
    assert most_said - 1 <= len(expected) <= most_said  # the last call's own token is not wanted after an end


@pytest.mark.parametrize("errs_at", range(4))
def test_states_cost_no_calls_of_their_own(errs_at: int) -> None:
    """Rejected at every place: accepted tokens are fed again in the call that verifies the next draft."""
    prompt = [3, 1, 2]
    expected = _expected(prompt, 21)
    model = _Scoring(4, 60, 6, recurrent=True)
    speculation = Speculation(model, _Scripted([*prompt, *expected], [errs_at]), 3)
    steps = list(generate(model, prompt, Sampler(SamplingConfig(), _VOCABULARY), StopRule(frozenset(), 21),
                          speculation=speculation))  # fmt: skip
    assert [step.token_id for step in steps] == expected
    calls = [name for name, _ in model.calls if name != "prefill"]
    assert len(calls) == 20 - speculation.accepted
    assert calls.count("decode") <= 1


@pytest.mark.parametrize("errs_at", range(5))
def test_as_many_are_accepted_as_are_right(errs_at: int) -> None:
    prompt = [3, 1, 2]
    expected = _expected(prompt, 21)
    model = _Scoring(4, 60, 5)
    speculation = Speculation(model, _Scripted([*prompt, *expected], [errs_at]))
    steps = list(generate(model, prompt, Sampler(SamplingConfig(), _VOCABULARY), StopRule(frozenset(), 21),
                          speculation=speculation))  # fmt: skip
    assert [step.token_id for step in steps] == expected
    calls = [name for name, _ in model.calls if name != "prefill"]
    assert len(calls) == -(-20 // (errs_at + 1))  # each call gives the right ones and one more
    assert speculation.accepted == 20 - len(calls)


def test_proposals_are_cut_to_what_was_asked_for() -> None:
    model = _Scoring(4, 60, 3)
    speculation = Speculation(model, _Fixed([1, 2, 3, 4, 5]))
    prompt = [3, 1, 2]
    said = _said(model, prompt, StopRule(frozenset(), 9), SamplingConfig(), speculation)
    assert [token for token, *_ in said] == _expected(prompt, 9)
    assert speculation.drafted <= 2 * 8


@settings(deadline=None)
@given(prompt=_PROMPTS, new=st.integers(1, 12), short=st.integers(0, 9), same=st.booleans(), recurrent=st.booleans())
def test_a_draft_model_of_any_capacity(prompt: list[int], new: int, short: int, same: bool, recurrent: bool) -> None:
    """One that says the same is always right; one that says something else, or has no room, does no harm."""
    needed = len(prompt) + new - 1
    capacity = max(needed, 4) + 4

    class Other(_Drafting):
        def _logits(self, length: int) -> KnownLogits:
            assert not self.recurrent or self.state == self.cache[:length]
            assert -1 not in self.cache[:length]
            return KnownLogits(_logits(self.cache[:length] if same else [1, *self.cache[:length]]))

    model = _Scoring(3, capacity, 4)
    speculation = Speculation(model, DraftModel(Other(3, max(3, capacity - short), recurrent)))
    said = _said(model, prompt, StopRule(frozenset(), new), SamplingConfig(), speculation)
    assert [token for token, *_ in said] == _expected(prompt, new)
    if same:
        assert speculation.accepted == speculation.drafted
    if same and not short and new > 5:
        assert len([name for name, _ in model.calls if name != "prefill"]) == -(-(new - 1) // 4)


@settings(deadline=None)
@given(history=st.lists(st.integers(0, 2), min_size=1, max_size=30), longest=st.integers(1, 4), count=st.integers(1, 5))
def test_lookup_finds_the_latest_place_of_the_longest_run(history: list[int], longest: int, count: int) -> None:
    def search() -> list[int]:
        for size in range(longest, min(longest, 2) - 1, -1):
            for end in range(len(history) - 1, size - 1, -1):
                if history[end - size : end] == history[-size:]:
                    tokens = list(history)
                    for _ in range(count):
                        tokens.append(tokens[end + len(tokens) - len(history)])
                    return tokens[len(history) :]
        return []

    lookup = PromptLookup(longest)
    for cut in range(max(1, len(history) - 3), len(history)):
        lookup.propose(history[:cut], 1)
    assert lookup.propose(history, count) == search()


def test_a_text_that_repeats_needs_few_calls() -> None:
    class Cycle(_Scoring):
        def _logits(self, length: int) -> KnownLogits:
            return _cycle(self.cache[length - 1])

        def score(self, token_ids: np.ndarray, position: int, last: int) -> Sequence[Prediction]:
            super().score(token_ids, position, last)
            return [_cycle(token) for token in token_ids[0].tolist()]

    model = Cycle(4, 99, 8)
    speculation = Speculation(model, PromptLookup())
    said = _said(model, [0, 1, 2, 3, 4], StopRule(frozenset(), 60), SamplingConfig(), speculation)
    assert [token for token, *_ in said] == [(5 + i) % 7 for i in range(60)]
    assert len(model.calls) < 18
    assert speculation.accepted == speculation.drafted


def _cycle(token: int) -> KnownLogits:
    logits = np.zeros(_VOCABULARY, np.float32)
    logits[(token + 1) % 7] = 1
    return KnownLogits(logits)


_NEVER: Drafter = _Fixed([])


@pytest.mark.parametrize(
    ("model", "most", "message"),
    [
        (_Scoring(4, 9, 4), 4, r"drafts of up to 4 tokens: expected 1 to 3, .*: ask for fewer, or .*score_tokens=5"),
        (_Scoring(4, 9, 4), 0, r"drafts of up to 0 tokens: expected 1 to 3"),
        (_Scoring(4, 9, 1), None, r"score takes 1 token a call, .*: export with score_tokens=8"),
    ],
)
def test_what_cannot_speculate(model: _Scoring, most: int | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Speculation(model, _NEVER, most)


def test_a_draft_model_whose_logits_are_not_finite_has_no_guess() -> None:
    class Broken(_Drafting):
        def _logits(self, length: int) -> KnownLogits:
            return KnownLogits(np.full(_VOCABULARY, np.nan if length == 5 else 1.0, np.float32))

    assert DraftModel(Broken(4, 9)).propose([1, 2, 3], 4) == [0, 0]
    assert DraftModel(Broken(4, 9)).propose([1, 2, 3, 4, 5], 4) == []


def test_drafters_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match=r"the tokens to look for: expected at least 1; found 0"):
        PromptLookup(0)
