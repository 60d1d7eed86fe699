"""Requests with adapters: each has the answer of its own adapter, and reuses nothing of another one."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from generation import Prediction, SamplingConfig
from generation.engine import EndEvent, Event, PromptEvent, RowAdapter, StepEngine, TokenEvent, TokenRequest
from generation.engine._hash_slots_testing import HashSlots
from lang_core import InputError

_PROMPT = [1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13]
_ONE, _TWO = RowAdapter(1, "one"), RowAdapter(2, "two")


class AdaptedHashSlots(HashSlots):
    """Rows that read another token with each adapter."""

    adapter_count = 2

    def __init__(self, **options: Any) -> None:
        """Begins without adapters; arguments as of ``HashSlots``."""
        super().__init__(**options)
        self._adapters = [0] * self.slots

    def adapt_row(self, row: int, adapter: int) -> None:
        """Changes the tokens that the row reads from now on."""
        self._adapters[row] = adapter

    def _read(self, token: int, row: int) -> int:
        return (token + 13 * self._adapters[row]) % self.vocabulary

    def prefill_row(
        self, token_ids: Sequence[int], row: int, position: int, embeddings: np.ndarray | None = None
    ) -> Prediction:
        """Runs other tokens than those that are given."""
        return super().prefill_row([self._read(token, row) for token in token_ids], row, position, embeddings)

    def decode(self, rows: Sequence[int], token_ids: Sequence[int], positions: Sequence[int]) -> Sequence[Prediction]:
        """Runs other tokens than those that are given."""
        read = [self._read(token, row) for token, row in zip(token_ids, rows, strict=True)]
        return super().decode(rows, read, positions)


def answers(adapters: Sequence[RowAdapter | None], prompt: Sequence[int] = _PROMPT) -> list[tuple[list[int], int]]:
    """Returns tokens and reused tokens of requests that are made at once."""
    engine = StepEngine(AdaptedHashSlots(slots=3))
    return asked(engine, adapters, prompt)


def asked(
    engine: StepEngine, adapters: Sequence[RowAdapter | None], prompt: Sequence[int]
) -> list[tuple[list[int], int]]:
    received: list[list[Event]] = [[] for _ in adapters]
    for adapter, events in zip(adapters, received, strict=True):
        sampling = SamplingConfig(temperature=0.0)
        engine.submit(TokenRequest(prompt=prompt, sampling=sampling, max_new_tokens=9, adapter=adapter), events.append)
    while engine.busy:
        engine.step()
    assert all(isinstance(events[-1], EndEvent) and events[-1].error is None for events in received)
    tokens = [[event.token_id for event in events if isinstance(event, TokenEvent)] for events in received]
    reused = [next(event.reused for event in events if isinstance(event, PromptEvent)) for events in received]
    return list(zip(tokens, reused, strict=True))


def test_answers_beside_other_adapters_are_those_alone() -> None:
    adapters = [None, _ONE, _TWO, _ONE, None, _TWO, _ONE]
    alone = [answers([adapter])[0][0] for adapter in adapters]
    assert len({tuple(tokens) for tokens in alone}) == 3
    assert [tokens for tokens, _ in answers(adapters)] == alone


def test_a_row_that_had_an_adapter_serves_without() -> None:
    engine = StepEngine(AdaptedHashSlots(slots=1))
    alone = {adapter: answers([adapter])[0][0] for adapter in (None, _ONE, _TWO)}
    for adapter in (_ONE, None, _TWO, _ONE, None):
        ((tokens, reused),) = asked(engine, [adapter], _PROMPT)
        assert tokens == alone[adapter]
        assert reused in (0, len(_PROMPT) - 1)


def test_prefixes_are_reused_by_the_key_of_an_adapter_alone() -> None:
    engine = StepEngine(AdaptedHashSlots(slots=2))
    reused = [asked(engine, [adapter], _PROMPT)[0][1] for adapter in (_ONE, _TWO, None, _ONE, None)]
    assert reused[:3] == [0, 0, 0]
    assert min(reused[3:]) > 0
    assert asked(engine, [RowAdapter(1, "other")], _PROMPT)[0][1] == 0  # has taken the number of the first


@pytest.mark.parametrize("number", [0, 3])
def test_a_number_that_the_model_does_not_have_is_refused(number: int) -> None:
    with pytest.raises(InputError, match=f"adapter {number}: the model takes 2 adapters"):
        answers([RowAdapter(number, "")])
    request = TokenRequest(prompt=[1], sampling=SamplingConfig(), max_new_tokens=1, adapter=_ONE)
    with pytest.raises(InputError, match="adapter 1: the model takes 0 adapters"):
        StepEngine(HashSlots()).submit(request, lambda event: None)
