"""A model of one sequence as a runner: prompts in pieces, ends, and prompts that begin as earlier ones did."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from generation import KnownLogits, SamplingConfig, StopRule
from generation.engine._answer_steps import AnswerSteps
from generation.engine._one_row import OneRow, SequenceModel
from generation.engine._request import TokenRequest
from generation.engine._sequence_testing import (
    VOCABULARY,
    KeepingModel,
    greedy_after,
    logits_after,
    steps_of,
    tokens_of,
)
from generation.engine._settings import EngineSettings
from generation.engine._steps import StepEngine
from lang_core import InputError

_NOTHING = -1


@settings(deadline=None)
@given(data=st.data())
def test_any_prompt_in_pieces_gives_what_it_gives_at_once(data: st.DataObject) -> None:
    chunk = data.draw(st.integers(1, 9))
    prompt = data.draw(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=25))
    steps = data.draw(st.integers(1, 4))
    needed = len(prompt) + steps - 1
    capacity = max(needed, chunk) + data.draw(st.integers(0, 3))
    model = KeepingModel(chunk, capacity, recurrent=data.draw(st.booleans()))
    assert tokens_of(model, prompt, StopRule(frozenset(), steps)) == greedy_after(prompt, steps)
    assert model.cache[:needed] == [*prompt, *greedy_after(prompt, steps)[:-1]]
    if not model.recurrent:
        assert sum(name == "prefill" for name, _ in model.calls) == -(-len(prompt) // chunk)
        assert sum(name == "decode" for name, _ in model.calls) == steps - 1


@pytest.mark.parametrize(
    ("length", "capacity", "starts"),
    [
        (1, 11, [0]),
        (3, 11, [0]),
        (4, 11, [0]),
        (5, 11, [0, 4]),
        (8, 11, [0, 4]),
        (9, 11, [0, 4, 7]),
        (9, 12, [0, 4, 8]),
        (11, 11, [0, 4, 7]),
    ],
)
def test_where_the_pieces_begin(length: int, capacity: int, starts: list[int]) -> None:
    model = KeepingModel(4, capacity)
    prompt = [7 * i % VOCABULARY for i in range(length)]
    (step,) = steps_of(model, prompt, StopRule(frozenset(), 1))
    np.testing.assert_array_equal(step.logits, logits_after(prompt))
    assert model.calls == [("prefill", start) for start in starts]


def test_steps_say_their_logits_and_why_they_are_the_last() -> None:
    prompt = [3, 1, 2]
    first, second, third = steps_of(KeepingModel(4, 9), prompt, StopRule(frozenset(), 3))
    np.testing.assert_array_equal(first.logits, logits_after(prompt))
    np.testing.assert_array_equal(second.logits, logits_after([*prompt, first.token_id]))
    assert [step.ended for step in (first, second, third)] == [None, None, "length"]


def test_an_end_token_ends_unless_ignored() -> None:
    prompt = [3, 1, 2]
    expected = greedy_after(prompt, 5)
    ends = frozenset({expected[2]})
    assert expected[2] not in expected[:2]
    steps = steps_of(KeepingModel(4, 9), prompt, StopRule(ends, 5))
    assert [step.token_id for step in steps] == expected[:3]
    assert steps[-1].ended == "eos"
    assert tokens_of(KeepingModel(4, 9), prompt, StopRule(ends, 5, ignore_eos=True)) == expected


def test_the_caches_can_be_filled_to_the_last_position_and_not_beyond() -> None:
    prompt = [5, 6, 7, 8]
    assert len(tokens_of(KeepingModel(4, 6), prompt, StopRule(frozenset(), 3))) == 3
    model = KeepingModel(4, 6)
    with pytest.raises(InputError, match="a prompt of 4 tokens and 4 new ones need 7 positions, and 6 are there"):
        tokens_of(model, prompt, StopRule(frozenset(), 4))
    assert model.calls == []


def test_the_first_token_comes_before_the_first_step() -> None:
    model = KeepingModel(4, 9)
    request = TokenRequest(prompt=[3, 1, 2], sampling=SamplingConfig(), max_new_tokens=4, predictions=True)
    answer = AnswerSteps(StepEngine(OneRow(model), EngineSettings(decode_after_prompts=False)), [request])
    for _ in range(4):
        next(answer)
        calls = [name for name, _ in model.calls]
        assert calls == ["prefill", *["decode"] * (len(calls) - 1)]
    assert len(model.calls) == 4


class _CallModel(SequenceModel):
    """An entry depends on everything before it, and on the call that made it and its row there: as rounding may do.

    Padding and what lies beyond a row's own position do not count. The state is of all tokens so far, by their calls.
    """

    def __init__(self, chunk: int, capacity: int, recurrent: bool) -> None:
        self.chunk, self.capacity, self.recurrent, self.vocabulary = chunk, capacity, recurrent, 40
        self.position_axes = (0, None) if recurrent else (0,)
        self.cache = [_NOTHING] * capacity
        self.state = 0
        self.calls: list[tuple[str, int, int]] = []

    def prefill(
        self, token_ids: np.ndarray, position: int, last: int, embeddings: np.ndarray | None = None
    ) -> KnownLogits:
        assert embeddings is None
        assert 0 <= position <= self.capacity - self.chunk
        return self._append("prefill", token_ids[0].tolist(), position, last)

    def decode(self, token_id: int, position: int) -> KnownLogits:
        return self._append("decode", [token_id], position, 0)

    def clear_states(self) -> None:
        self.state = 0

    def read_row(self, start: int, stop: int) -> Sequence[np.ndarray]:
        arrays = [np.array(self.cache[start:stop], np.int64), np.array(self.state, np.int64)]
        return arrays if self.recurrent else arrays[:1]

    def write_row(self, start: int, arrays: Sequence[np.ndarray]) -> None:
        self.cache[start : start + len(arrays[0])] = arrays[0].tolist()
        self.state = int(arrays[1]) if self.recurrent else 0

    def _append(self, call: str, tokens: Sequence[int], position: int, last: int) -> KnownLogits:
        self.calls.append((call, position, last))
        logits = 0
        for row, token in enumerate(tokens):
            before = tuple(self.cache[: position + row])
            assert _NOTHING not in before
            self.cache[position + row] = hash((before, call, row, token))
            if row <= last:
                self.state = hash((self.state, call, row, token)) if self.recurrent else 0
            if row == last:
                logits = hash((before, self.cache[position + row], self.state))
        return KnownLogits(np.random.default_rng(logits & 0xFFFFFF).standard_normal(40).astype(np.float32))


def _engine(model: SequenceModel) -> StepEngine:
    stores = 1 << 20 if model.recurrent else 0
    return StepEngine(OneRow(model), EngineSettings(exact=False, store_bytes=stores, checkpoint_pieces=False))


def _answer(engine: StepEngine, prompt: list[int], new: int) -> tuple[int, list[int]]:
    """Returns the number of tokens that are reused, and the answer."""
    request = TokenRequest(prompt=prompt, sampling=SamplingConfig(), max_new_tokens=new, predictions=True)
    answer = AnswerSteps(engine, [request])
    tokens = [step.token_id for _, step in answer]
    return answer.reused, tokens


@settings(deadline=None)
@given(
    chunk=st.integers(1, 6),
    room=st.integers(0, 7),
    recurrent=st.booleans(),
    prompts=st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=20), min_size=2, max_size=5),
)
@example(chunk=4, room=0, recurrent=False, prompts=[[0] * 11, [0] * 10, [0] * 7, [0] * 11])  # pieces that begin early
@example(chunk=4, room=0, recurrent=True, prompts=[[0] * 11, [0] * 10, [0] * 7, [0] * 11])
def test_prompts_one_after_the_other_are_as_each_alone(
    chunk: int, room: int, recurrent: bool, prompts: list[list[int]]
) -> None:
    new = 2
    capacity = max(chunk, *map(len, prompts)) + room + 1
    model = _CallModel(chunk, capacity, recurrent)
    engine = _engine(model)
    for prompt in prompts:
        model.calls.clear()
        reused, tokens = _answer(engine, prompt, new)
        alone = _CallModel(chunk, capacity, recurrent)
        assert (0, tokens) == _answer(_engine(alone), prompt, new)
        assert model.cache[: len(prompt) + 1] == alone.cache[: len(prompt) + 1]
        assert model.state == alone.state
        assert model.calls == alone.calls[reused // chunk :]


def test_what_is_kept_is_not_run_again() -> None:
    model = _CallModel(4, 32, recurrent=False)
    engine = _engine(model)
    _answer(engine, list(range(9)), 1)
    model.calls.clear()
    assert _answer(engine, [*range(9), *range(20, 31)], 1)[0] == 8
    assert model.calls == [("prefill", 8, 3), ("prefill", 12, 3), ("prefill", 16, 3)]
    model.calls.clear()
    assert _answer(engine, [*range(5), 7, 7, 7, 7], 1)[0] == 4
    assert model.calls == [("prefill", 4, 3), ("prefill", 8, 0)]
    model.calls.clear()
    assert _answer(engine, [9, 9], 1)[0] == 0
    assert model.calls == [("prefill", 0, 1)]


class _SeeingModel(KeepingModel):
    """Takes the sum of an embedding, if there is one, in place of an image token."""

    image_token = 3

    def prefill(
        self, token_ids: np.ndarray, position: int, last: int, embeddings: np.ndarray | None = None
    ) -> KnownLogits:
        seen = token_ids.copy()
        if embeddings is not None:
            assert embeddings.shape == (1, self.chunk, 2)
            at = token_ids[0] == 3
            seen[0, at] = 100 + embeddings[0, at].sum(-1)
        return super().prefill(seen, position, last)


@pytest.mark.parametrize("capacity", [12, 13, 30])
def test_a_piece_that_begins_early_repeats_pictures_with_their_embeddings(capacity: int) -> None:
    tokens = [1, 3, 3, 2, 4, 3, 3, 3, 3, 5, 6]
    embeddings = np.arange(2 * len(tokens), dtype=np.float32).reshape(-1, 2)
    model = _SeeingModel(4, capacity)
    row = OneRow(model)
    row.begin_row(0, np.array(tokens))
    for start in range(0, len(tokens), 4):
        piece = tokens[start : start + 4]
        row.prefill_row(piece, 0, start, embeddings[start : start + 4] if 3 in piece else None)
    sums = embeddings.sum(-1).astype(int).tolist()
    assert model.cache[: len(tokens)] == [
        100 + sums[place] if token == 3 else token for place, token in enumerate(tokens)
    ]
