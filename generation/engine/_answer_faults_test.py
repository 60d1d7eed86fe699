"""One answer fails, for its constraint or its logits, and no other."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from generation import SamplingConfig
from generation.engine import ConstraintError, Engine, TokenRequest
from generation.engine._ends_testing import Ends
from generation.engine._hash_slots_testing import HashSlots
from generation.engine._reference_testing import EveryOther


class _Nothing(EveryOther):
    def mask(self, out: np.ndarray) -> None:
        out[:] = False


class _Broken(EveryOther):
    def accept(self, token_id: int) -> None:
        raise RuntimeError(f"no {token_id}")


class _Unmaskable(EveryOther):
    def mask(self, out: np.ndarray) -> None:
        raise RuntimeError("no mask")


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        (_Nothing(41, 3), "the request's constraint allows no token here: give one that an answer can satisfy"),
        (_Broken(41, 3), r"the request's constraint failed in accept \(RuntimeError: no \d+\): give another"),
        (_Unmaskable(41, 3), r"the request's constraint failed in mask \(RuntimeError: no mask\): give another"),
    ],
)
def test_a_constraint_that_fails_ends_its_answer_without_a_token(constraint: Any, message: str) -> None:
    engine, ends = Engine(HashSlots(2)), Ends()
    received, on_event = ends.listen()
    other, on_other = ends.listen()
    request = TokenRequest(prompt=[1, 2], max_new_tokens=4, sampling=SamplingConfig())
    engine.submit(TokenRequest(**{**vars(request), "constraint": constraint}), on_event)
    engine.submit(request, on_other)
    ends.wait(2)
    assert not received.tokens
    assert received.end.reason == "error"
    with pytest.raises(ConstraintError, match=message):
        raise received.end.error or AssertionError
    assert other.end.reason == "length"
    engine.close()


class _NotFinite(HashSlots):
    """Model whose logits are not finite after one token."""

    def _prediction(self, row: int, filled: int) -> Any:
        prediction = super()._prediction(row, filled)
        if 9 in self.last:
            prediction.logits()[:] = np.nan
        return prediction

    def prefill_row(self, token_ids: Sequence[int], row: int, position: int, embeddings: Any = None) -> Any:
        self.last = list(token_ids)
        return super().prefill_row(token_ids, row, position, embeddings)


def test_logits_that_are_not_finite_end_one_answer_and_are_not_reused() -> None:
    engine, ends = Engine(_NotFinite(2)), Ends()
    (first, on_first), (second, on_second) = ends.listen(), ends.listen()
    engine.submit(TokenRequest(prompt=[1, 2, 3, 4, 5, 9], max_new_tokens=4, sampling=SamplingConfig()), on_first)
    ends.wait(1)
    engine.submit(TokenRequest(prompt=[1, 2, 3, 4, 5, 8], max_new_tokens=4, sampling=SamplingConfig()), on_second)
    ends.wait(1)
    assert "logits are not finite" in str(first.end.error)
    assert second.end.reason == "length"
    assert second.end.reused_tokens == 0
    engine.close()
