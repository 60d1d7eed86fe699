"""Prefixes that are kept outside the engine: answers after them are those of fresh caches."""

import numpy as np
import pytest

from generation import SamplingConfig
from generation.engine._hash_slots_testing import HashSlots, LengthHashSlots
from generation.engine._request import Event, PromptEvent, TokenEvent, TokenRequest
from generation.engine._settings import EngineSettings
from generation.engine._steps import StepEngine

_CHUNKS = (4, 16)
_PROMPT = np.random.default_rng(8).integers(0, 41, 43).tolist()
_BELOW = {
    43: 40,
    40: 36,
    36: 32,
    17: 16,
    16: 0,
}  # tokens below a prompt's length, and those of its whole pieces below it


def _answer(engine: StepEngine, prompt: list[int]) -> tuple[int, list[int]]:
    """Returns the number of tokens that are reused, and the answer."""
    events: list[Event] = []
    engine.submit(TokenRequest(prompt=prompt, sampling=SamplingConfig(), max_new_tokens=6), events.append)
    while engine.busy:
        engine.step()
    reused = next(event.reused for event in events if isinstance(event, PromptEvent))
    return reused, [event.token_id for event in events if isinstance(event, TokenEvent)]


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("pieces", [False, True])
@pytest.mark.parametrize("length", _BELOW)
def test_a_prefix_serves_another_engine(length: int, recurrent: bool, pieces: bool) -> None:
    def engine() -> StepEngine:
        model = HashSlots(chunks=_CHUNKS, invariant=False, recurrent=recurrent, slots=1)
        return StepEngine(model, EngineSettings(checkpoint_pieces=pieces))

    first = engine()
    reused, wanted = _answer(first, _PROMPT[:length])
    assert reused == 0
    prefix = first.last_prefix(length)
    if not _BELOW[length]:
        assert prefix is None
        return
    assert prefix is not None
    assert prefix.token_ids.tolist() == _PROMPT[: _BELOW[length]]
    second = engine()
    second.put_prefix(prefix)
    assert _answer(second, _PROMPT[:length]) == (_BELOW[length], wanted)
    again = second.last_prefix(length)
    assert again is not None
    np.testing.assert_array_equal(again.token_ids, prefix.token_ids)
    for array, expected in zip(again.arrays, prefix.arrays, strict=True):
        np.testing.assert_array_equal(array, expected)


def test_a_prefix_serves_sequences_with_the_same_keys_alone() -> None:
    def engine() -> StepEngine:
        return StepEngine(LengthHashSlots(24, chunks=(4,), invariant=False, slots=1))

    first, second = engine(), engine()
    _answer(first, _PROMPT[:17])
    prefix = first.last_prefix(17)
    assert prefix is not None
    assert prefix.regime == 0
    second.put_prefix(prefix)
    assert _answer(second, _PROMPT) == _answer(engine(), _PROMPT)  # it is longer than 24
    _answer(first, _PROMPT)
    longer = first.last_prefix(43)
    assert longer is not None
    assert longer.regime == 1
    third = engine()
    third.put_prefix(longer)
    assert _answer(third, _PROMPT) == (40, _answer(engine(), _PROMPT)[1])


def test_a_store_with_one_state_of_each_prompt_serves_its_continuation() -> None:
    model = HashSlots(chunks=(4,), invariant=False, recurrent=True, slots=1)
    engine = StepEngine(model, EngineSettings(checkpoint_pieces=False))
    prompt: list[int] = _PROMPT[:18]
    for _ in range(3):
        before = len(prompt)
        _, answer = _answer(engine, prompt)
        prompt = [*prompt, *answer, 7, 7]
        reused, again = _answer(engine, prompt)
        assert reused == (before - 1) // 4 * 4
        assert again == _answer(StepEngine(HashSlots(chunks=(4,), invariant=False, recurrent=True)), prompt)[1]
