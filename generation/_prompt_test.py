"""Prompts that begin as earlier ones did: the caches are those of a run without the memory, to the last bit."""

from collections.abc import Sequence

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from generation import KnownLogits, run_prompt

_NOTHING = -1


class _Model:
    """An entry depends on everything before it, and on the call that made it and its row there: as rounding may do.

    Padding and what lies beyond a row's own position do not count. ``state`` is of all tokens so far, by their calls.
    """

    def __init__(self, chunk: int, capacity: int, recurrent: bool) -> None:
        self.chunk, self.capacity, self.recurrent = chunk, capacity, recurrent
        self.cache = [_NOTHING] * capacity
        self.state = 0
        self.calls: list[tuple[str, int, int]] = []

    def prefill(self, token_ids: np.ndarray, position: int, last: int) -> KnownLogits:
        assert 0 <= position <= self.capacity - self.chunk
        return self._append("prefill", token_ids[0].tolist(), position, last)

    def decode(self, token_id: int, position: int) -> KnownLogits:
        return self._append("decode", [token_id], position, 0)

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
        return KnownLogits(np.array([logits & 0xFFFFFF], np.float32))


class _Memory:
    """Record for one model. States are copied at the one place that is kept; whole caches can be cut anywhere."""

    def __init__(self, model: _Model) -> None:
        self.model = model
        self.token_ids: list[int] = []
        self.state = 0

    def restore(self, token_ids: Sequence[int]) -> int:
        pairs = zip(self.token_ids, token_ids, strict=False)
        common = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(self.token_ids), len(token_ids)))
        kept = common // self.model.chunk * self.model.chunk
        if self.model.recurrent and kept < len(self.token_ids):
            kept = 0
        self.model.cache[kept:] = [_NOTHING] * (self.model.capacity - kept)
        self.model.state = self.state if kept else 0
        return kept

    def keep(self, token_ids: Sequence[int]) -> None:
        assert len(token_ids) % self.model.chunk == 0
        self.token_ids, self.state = list(token_ids), self.model.state


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
    capacity = max(chunk, *map(len, prompts)) + room
    model = _Model(chunk, capacity, recurrent)
    memory = _Memory(model)
    for prompt in prompts:
        kept = memory.restore(prompt[: (len(prompt) - 1) // chunk * chunk])
        model.calls.clear()
        prediction = run_prompt(model, prompt, memory)
        alone = _Model(chunk, capacity, recurrent)
        np.testing.assert_array_equal(prediction.logits(), run_prompt(alone, prompt).logits())
        assert model.cache[: len(prompt)] == alone.cache[: len(prompt)]
        assert model.state == alone.state
        assert model.calls == alone.calls[kept // chunk :]
        if len(prompt) < capacity:  # the answer, which the next prompt does not find
            model.decode(7, len(prompt))


def test_what_is_kept_is_not_run_again() -> None:
    model = _Model(4, 30, False)
    memory = _Memory(model)
    run_prompt(model, list(range(9)), memory)
    model.calls.clear()
    run_prompt(model, [*range(9), *range(20, 31)], memory)
    assert model.calls == [("prefill", 8, 3), ("prefill", 12, 3), ("prefill", 16, 3)]
    model.calls.clear()
    run_prompt(model, [*range(5), 7, 7, 7, 7], memory)
    assert model.calls == [("prefill", 4, 3), ("prefill", 8, 0)]
    model.calls.clear()
    run_prompt(model, [9, 9], memory)
    assert model.calls == [("prefill", 0, 1)]
