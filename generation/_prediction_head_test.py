"""Drafts of a model's own head never change what is said."""

import numpy as np
import pytest

from generation import KnownLogits, PredictionHead, SamplingConfig, Speculation, StopRule
from generation._loop_test import _VOCABULARY, _expected, _logits
from generation._speculation_test import _said, _Scoring


class _Headed(_Scoring):
    """Its head is right, but for every ``wrong``-th guess; a call may go on from the guess of the last one."""

    def __init__(self, score_tokens: int, recurrent: bool, wrong: int) -> None:
        super().__init__(4, 60, score_tokens, recurrent)
        self.wrong, self.drafts = wrong, 0
        self.text: list[int] = []
        self.guess = -1

    def draft(self, token_id: int, position: int) -> KnownLogits:
        assert position > 0
        goes_on = len(self.text) == position and token_id == self.guess
        self.text = [*(self.text if goes_on else self.cache[:position]), token_id]
        assert -1 not in self.text
        self.drafts += 1
        logits = _logits(self.text) * (-1 if self.drafts % self.wrong == 0 else 1)
        self.guess = int(logits.argmax())
        return KnownLogits(logits)


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("wrong", [2, 3, 99])
def test_a_prediction_head_drafts(recurrent: bool, wrong: int) -> None:
    prompt = [3, 1, 2]
    model = _Headed(4, recurrent, wrong)
    head = PredictionHead(model)
    speculation = Speculation(model, head)
    said = _said(model, prompt, StopRule(frozenset(), 21), SamplingConfig(), speculation)
    assert [token for token, *_ in said] == _expected(prompt, 21)
    calls = [name for name, _ in model.calls if name != "prefill"]
    assert len(calls) == 20 - speculation.accepted
    assert speculation.head_calls == head.calls == model.drafts == speculation.drafted
    if wrong == 99:
        assert speculation.accepted == speculation.drafted == 15


def test_a_prediction_head_without_a_guess() -> None:
    class Broken(_Headed):
        def draft(self, token_id: int, position: int) -> KnownLogits:
            return KnownLogits(np.full(_VOCABULARY, np.nan if position == 4 else 1.0, np.float32))

    head = PredictionHead(Broken(4, False, 99))
    assert head.propose([7], 3) == []  # it has no hidden state before the first token
    assert head.propose([7, 8], 5) == [0, 0, 0]
    assert head.propose([7, 8, 9, 9, 9], 5) == []
    assert head.calls == 5
    assert len(head.propose([1] * 59, 9)) == 2  # no more than there are places
