"""Speculation never changes what is said, whatever is proposed."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generation import Drafter, KnownLogits, PredictionHead, PromptLookup, SamplingConfig, StopRule
from generation.engine._draft_rows import DraftRows
from generation.engine._one_row import OneRow
from generation.engine._sequence_testing import (
    GREEDY,
    VOCABULARY,
    KeepingModel,
    answers_of,
    greedy_after,
    logits_after,
)
from lang_core import ConfigError


class _Scripted:
    """Knows what will be said, and errs at one place of each draft (nowhere where that is beyond it)."""

    def __init__(self, all_tokens: Sequence[int], errs_at: Sequence[int]) -> None:
        self.all_tokens, self.errs_at, self.calls = all_tokens, errs_at, 0

    def propose(self, history: Sequence[int], count: int) -> list[int]:
        tokens = list(self.all_tokens[len(history) : len(history) + count])
        at = self.errs_at[self.calls % len(self.errs_at)]
        self.calls += 1
        if at < len(tokens):
            tokens[at] = (tokens[at] + 1) % VOCABULARY
        return tokens


class _Fixed:
    def __init__(self, tokens: Sequence[int]) -> None:
        self.tokens = tokens

    def propose(self, history: Sequence[int], count: int) -> Sequence[int]:
        return self.tokens  # more than was asked for, and the same whatever was said


Said = list[tuple[int, bytes, str | None]]


def _said(
    model: KeepingModel,
    prompt: Sequence[int],
    stop: StopRule,
    config: SamplingConfig = GREEDY,
    drafter: Drafter | None = None,
    most: int | None = None,
) -> tuple[Said, int, int]:
    """Returns the steps, and the numbers of drafted and accepted tokens."""
    answers = answers_of(model, prompt, stop, config, drafter, most)
    said: Said = [(step.token_id, step.logits.tobytes(), step.ended) for _, step in answers]
    return said, answers.drafted, answers.accepted


_PROMPTS = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=9)
_CONFIGS = st.sampled_from(
    [SamplingConfig(), SamplingConfig(temperature=1.3, top_p=0.9, repetition_penalty=1.2, seed=5)]
)


@settings(deadline=None)
@given(
    prompt=_PROMPTS,
    config=_CONFIGS,
    errs_at=st.lists(st.integers(0, 6), min_size=1, max_size=4),
    new=st.integers(1, 12),
    verify_tokens=st.integers(2, 6),
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
    verify_tokens: int,
    room: int,
    most: int | None,
    eos: int,
    recurrent: bool,
) -> None:
    """Drafts wrong at every place, at the end of the caches, with an end token in the midst of a right one."""
    capacity = max(len(prompt) + new - 1, 3, verify_tokens) + room
    free = [token for token, *_ in _said(KeepingModel(3, capacity), prompt, StopRule(frozenset(), new), config)[0]]
    stop = StopRule(frozenset(free[eos : eos + 1]), new)
    expected, _, _ = _said(KeepingModel(3, capacity), prompt, stop, config)
    model = KeepingModel(3, capacity, recurrent, verify_tokens)
    drafter = _Scripted([*prompt, *free], errs_at)
    said, drafted, accepted = _said(model, prompt, stop, config, drafter, min(most or 99, verify_tokens - 1))
    assert said == expected
    assert 0 <= accepted <= drafted
    calls = [(name, position) for name, position in model.calls if name != "prefill" and position >= len(prompt)]
    if recurrent:  # near the end of the caches, accepted tokens are fed again one by one
        assert len({position for name, position in calls if name == "decode"}) <= len(expected)
        return
    most_said = 1 + accepted + len(calls)
    assert most_said - 1 <= len(expected) <= most_said  # the last call's own token is not wanted after an end


@pytest.mark.parametrize("errs_at", range(4))
def test_states_cost_no_calls_of_their_own(errs_at: int) -> None:
    """Rejected at every place: accepted tokens are fed again in the call that verifies the next draft."""
    prompt = [3, 1, 2]
    expected = greedy_after(prompt, 21)
    model = KeepingModel(4, 60, recurrent=True, verify_tokens=6)
    drafter = _Scripted([*prompt, *expected], [errs_at])
    said, _, accepted = _said(model, prompt, StopRule(frozenset(), 21), drafter=drafter, most=3)
    assert [token for token, *_ in said] == expected
    calls = [name for name, _ in model.calls if name != "prefill"]
    assert len(calls) == 20 - accepted
    assert calls.count("decode") <= 1


@pytest.mark.parametrize("errs_at", range(5))
def test_as_many_are_accepted_as_are_right(errs_at: int) -> None:
    prompt = [3, 1, 2]
    expected = greedy_after(prompt, 21)
    model = KeepingModel(4, 60, verify_tokens=5)
    drafter = _Scripted([*prompt, *expected], [errs_at])
    said, _, accepted = _said(model, prompt, StopRule(frozenset(), 21), drafter=drafter)
    assert [token for token, *_ in said] == expected
    calls = [name for name, _ in model.calls if name != "prefill"]
    assert len(calls) == -(-20 // (errs_at + 1))  # each call gives the right ones and one more
    assert accepted == 20 - len(calls)


def test_proposals_are_cut_to_what_was_asked_for() -> None:
    prompt = [3, 1, 2]
    model, drafter = KeepingModel(4, 60, verify_tokens=3), _Fixed([1, 2, 3, 4, 5])
    said, drafted, _ = _said(model, prompt, StopRule(frozenset(), 9), drafter=drafter)
    assert [token for token, *_ in said] == greedy_after(prompt, 9)
    assert drafted <= 2 * 8


@settings(deadline=None)
@given(prompt=_PROMPTS, new=st.integers(1, 12), short=st.integers(0, 9), same=st.booleans(), recurrent=st.booleans())
def test_a_draft_model_of_any_capacity(prompt: list[int], new: int, short: int, same: bool, recurrent: bool) -> None:
    """One that says the same is always right; one that says something else, or has no room, does no harm."""
    needed = len(prompt) + new - 1
    capacity = max(needed, 4) + 4

    class Other(KeepingModel):
        def prediction(self, length: int) -> KnownLogits:
            assert not self.recurrent or self.state == self.cache[:length]
            assert -1 not in self.cache[:length]
            return KnownLogits(logits_after(self.cache[:length] if same else [1, *self.cache[:length]]))

    model = KeepingModel(3, capacity, verify_tokens=4)
    rows = DraftRows(lambda: OneRow(Other(3, max(3, capacity - short), recurrent)), states=recurrent)
    for _ in range(2):  # the second answer goes on from what the first has left
        model.calls.clear()
        said, drafted, accepted = _said(model, prompt, StopRule(frozenset(), new), drafter=rows(0, False))
        assert [token for token, *_ in said] == greedy_after(prompt, new)
        if same:
            assert accepted == drafted
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
    class Cycle(KeepingModel):
        def prediction(self, length: int) -> KnownLogits:
            return _cycle(self.cache[length - 1])

    model = Cycle(4, 99, verify_tokens=8)
    said, drafted, accepted = _said(model, [0, 1, 2, 3, 4], StopRule(frozenset(), 60), drafter=PromptLookup())
    assert [token for token, *_ in said] == [(5 + i) % 7 for i in range(60)]
    assert len(model.calls) < 18
    assert accepted == drafted


def _cycle(token: int) -> KnownLogits:
    logits = np.zeros(VOCABULARY, np.float32)
    logits[(token + 1) % 7] = 1
    return KnownLogits(logits)


@pytest.mark.parametrize(
    ("verify_tokens", "most", "message"),
    [
        (4, 4, r"drafts of up to 4 tokens: expected 1 to 3, .*: ask for fewer, or .*verify_tokens=5"),
        (4, 0, r"drafts: tokens=0 is out of range: give at least 1"),
        (1, None, r"this one verifies 1: export one without states with verify_tokens=4"),
    ],
)
def test_what_cannot_speculate(verify_tokens: int, most: int | None, message: str) -> None:
    model = KeepingModel(4, 9, verify_tokens=verify_tokens)
    with pytest.raises(ConfigError, match=message):
        _said(model, [1, 2], StopRule(frozenset(), 3), drafter=_Fixed([]), most=most)


@pytest.mark.parametrize("recurrent", [False, True])
def test_a_draft_model_whose_logits_are_not_finite_has_no_guess(recurrent: bool) -> None:
    class Broken(KeepingModel):
        def prediction(self, length: int) -> KnownLogits:
            return KnownLogits(np.full(VOCABULARY, np.nan if length == 5 else 1.0, np.float32))

    rows = DraftRows(lambda: OneRow(Broken(4, 9, recurrent)), states=recurrent)
    assert list(rows(0, True).propose([1, 2, 3], 4)) == [0, 0]
    assert list(rows(0, True).propose([1, 2, 3, 4, 5], 4)) == []


@settings(deadline=None)
@given(
    histories=st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=30), min_size=1, max_size=6),
    count=st.integers(1, 4),
    recurrent=st.booleans(),
)
def test_a_draft_model_proposes_what_follows_whatever_came_before(
    histories: list[list[int]], count: int, recurrent: bool
) -> None:
    rows = DraftRows(lambda: OneRow(KeepingModel(5, 40, recurrent)), states=recurrent)
    for history in histories:
        assert list(rows(0, False).propose(history, count)) == greedy_after(history, count)


def test_a_draft_model_whose_call_failed_is_opened_anew() -> None:
    opened: list[KeepingModel] = []

    def open_runner() -> OneRow:
        opened.append(KeepingModel(4, 20))
        return OneRow(opened[-1])

    rows = DraftRows(open_runner)
    drafter = rows(0, False)
    opened[0].cache[:] = [-1] * 5  # shorter than it says
    opened[0].capacity = 1
    with pytest.raises(AssertionError):
        drafter.propose([1, 2, 3], 2)
    assert list(rows(0, False).propose([1, 2, 3], 2)) == greedy_after([1, 2, 3], 2)
    assert len(opened) == 2


def test_drafters_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match=r"the tokens to look for: expected at least 1; found 0"):
        PromptLookup(0)


class _Headed(KeepingModel):
    """Its head is right, but for every ``wrong``-th guess; a call may go on from the guess of the last one."""

    def __init__(self, verify_tokens: int, recurrent: bool, wrong: int) -> None:
        super().__init__(4, 60, recurrent, verify_tokens)
        self.wrong, self.drafts = wrong, 0
        self.text: list[int] = []
        self.guess = -1

    def draft(self, token_id: int, position: int) -> KnownLogits:
        assert position > 0
        goes_on = len(self.text) == position and token_id == self.guess
        self.text = [*(self.text if goes_on else self.cache[:position]), token_id]
        assert -1 not in self.text
        self.drafts += 1
        logits = logits_after(self.text) * (-1 if self.drafts % self.wrong == 0 else 1)
        self.guess = int(logits.argmax())
        return KnownLogits(logits)


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("wrong", [2, 3, 99])
def test_a_prediction_head_drafts(recurrent: bool, wrong: int) -> None:
    prompt = [3, 1, 2]
    model = _Headed(4, recurrent, wrong)
    said, drafted, accepted = _said(model, prompt, StopRule(frozenset(), 21), drafter=PredictionHead(model))
    assert [token for token, *_ in said] == greedy_after(prompt, 21)
    calls = [name for name, _ in model.calls if name != "prefill"]
    assert len(calls) == 20 - accepted
    assert model.drafts == drafted
    if wrong == 99:
        assert accepted == drafted == 15


def test_a_prediction_head_without_a_guess() -> None:
    class Broken(_Headed):
        def draft(self, token_id: int, position: int) -> KnownLogits:
            return KnownLogits(np.full(VOCABULARY, np.nan if position == 4 else 1.0, np.float32))

    head = PredictionHead(Broken(4, False, 99))
    assert head.propose([7], 3) == []  # it has no hidden state before the first token
    assert head.propose([7, 8], 5) == [0, 0, 0]
    assert head.propose([7, 8, 9, 9, 9], 5) == []
    assert len(head.propose([1] * 59, 9)) == 2  # no more than there are places
