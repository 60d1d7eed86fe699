from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from generation import KnownLogits, Sampler, SamplingConfig, StopRule, generate, run_prompt
from lang_core import InputError

_VOCABULARY = 23


class _Model:
    """Keeps what it has seen, and answers with what follows from all of it: a wrong cache is a wrong token."""

    def __init__(self, chunk: int, capacity: int, recurrent: bool = False) -> None:
        self.chunk = chunk
        self.capacity = capacity
        self.recurrent = recurrent
        self.cache = [-1] * capacity
        self.calls: list[tuple[str, int]] = []

    def prefill(self, token_ids: np.ndarray, position: int, last: int) -> KnownLogits:
        assert token_ids.dtype == np.int32
        assert token_ids.shape == (1, self.chunk)
        assert 0 <= position <= self.capacity - self.chunk
        assert 0 <= last < self.chunk
        self.calls.append(("prefill", position))
        self.cache[position : position + self.chunk] = token_ids[0].tolist()
        return self._logits(position + last + 1)

    def decode(self, token_id: int, position: int) -> KnownLogits:
        assert 0 <= position < self.capacity
        self.calls.append(("decode", position))
        self.cache[position] = token_id
        return self._logits(position + 1)

    def _logits(self, length: int) -> KnownLogits:
        return KnownLogits(_logits(self.cache[:length]))


def _logits(seen: Sequence[int]) -> np.ndarray:
    digest = 0
    for token in seen:
        digest = (digest * 31 + token + 1) % 1_000_003
    return np.random.default_rng(digest).standard_normal(_VOCABULARY).astype(np.float32)


def _expected(prompt: Sequence[int], steps: int) -> list[int]:
    seen = list(prompt)
    for _ in range(steps):
        seen.append(int(_logits(seen).argmax()))
    return seen[len(prompt) :]


def _greedy() -> Sampler:
    return Sampler(SamplingConfig(), _VOCABULARY)


def _tokens(model: _Model, prompt: Sequence[int], stop: StopRule) -> list[int]:
    return [step.token_id for step in generate(model, prompt, _greedy(), stop)]


@given(data=st.data())
def test_any_prompt_in_pieces_gives_what_it_gives_at_once(data: st.DataObject) -> None:
    chunk = data.draw(st.integers(1, 9))
    prompt = data.draw(st.lists(st.integers(0, _VOCABULARY - 1), min_size=1, max_size=25))
    steps = data.draw(st.integers(1, 4))
    needed = len(prompt) + steps - 1
    capacity = max(needed, chunk) + data.draw(st.integers(0, 3))
    model = _Model(chunk, capacity)
    assert _tokens(model, prompt, StopRule(frozenset(), steps)) == _expected(prompt, steps)
    assert model.cache[:needed] == [*prompt, *_expected(prompt, steps)[:-1]]
    assert sum(name == "prefill" for name, _ in model.calls) == -(-len(prompt) // chunk)
    assert sum(name == "decode" for name, _ in model.calls) == steps - 1


@given(chunk=st.integers(1, 9), count=st.integers(1, 25), room=st.integers(0, 12))
def test_a_recurrent_model_sees_every_token_once_and_in_its_place(chunk: int, count: int, room: int) -> None:
    class Recurrent(_Model):
        def prefill(self, token_ids: np.ndarray, position: int, last: int) -> KnownLogits:
            assert 0 <= position <= self.capacity - self.chunk
            self.cache.extend(token_ids[0, : last + 1].tolist())
            return self._logits(len(self.cache))

        def decode(self, token_id: int, position: int) -> KnownLogits:
            assert position == len(self.cache)
            self.cache.append(token_id)
            return self._logits(len(self.cache))

    model = Recurrent(chunk, max(count, chunk) + room, recurrent=True)
    model.cache = []
    prompt = [7 * i % _VOCABULARY for i in range(count)]
    np.testing.assert_array_equal(run_prompt(model, prompt).logits(), _logits(prompt))
    assert model.cache == prompt


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
    model = _Model(4, capacity)
    prompt = [7 * i % _VOCABULARY for i in range(length)]
    np.testing.assert_array_equal(run_prompt(model, prompt).logits(), _logits(prompt))
    assert model.calls == [("prefill", start) for start in starts]


def test_steps_say_their_logits_and_why_they_are_the_last() -> None:
    prompt = [3, 1, 2]
    first, second, third = list(generate(_Model(4, 9), prompt, _greedy(), StopRule(frozenset(), 3)))
    np.testing.assert_array_equal(first.logits, _logits(prompt))
    np.testing.assert_array_equal(second.logits, _logits([*prompt, first.token_id]))
    assert [step.ended for step in (first, second, third)] == [None, None, "length"]


def test_an_end_token_ends_unless_ignored() -> None:
    prompt = [3, 1, 2]
    expected = _expected(prompt, 5)
    ends = frozenset({expected[2]})
    assert expected[2] not in expected[:2]
    steps = list(generate(_Model(4, 9), prompt, _greedy(), StopRule(ends, 5)))
    assert [step.token_id for step in steps] == expected[:3]
    assert steps[-1].ended == "eos"
    assert _tokens(_Model(4, 9), prompt, StopRule(ends, 5, ignore_eos=True)) == expected


def test_the_caches_can_be_filled_to_the_last_position_and_not_beyond() -> None:
    prompt = [5, 6, 7, 8]
    assert len(_tokens(_Model(4, 6), prompt, StopRule(frozenset(), 3))) == 3
    model = _Model(4, 6)
    with pytest.raises(
        InputError,
        match=r"a prompt of 4 tokens and 4 new ones need 7 positions, the bundle's caches hold 6: ask for fewer, or "
        r"export with max_sequence=7 or more",
    ):
        _tokens(model, prompt, StopRule(frozenset(), 4))
    assert model.calls == []


def test_an_empty_prompt_is_refused() -> None:
    model = _Model(4, 6)
    with pytest.raises(InputError, match=r"the prompt has no token: give `prompt` or `token_ids` at least one"):
        _tokens(model, [], StopRule(frozenset(), 4))
    assert model.calls == []
