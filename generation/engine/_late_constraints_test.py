"""Constraints that take long, or never have a mask: other answers go on, with the same tokens."""

from typing import Any

import pytest

from generation import SamplingConfig
from generation.engine import ConstraintError, Engine, TokenRequest
from generation.engine._ends_testing import Ends
from generation.engine._hash_slots_testing import HashSlots
from generation.engine._reference_testing import EveryOther, LateEveryOther

_PLAIN = TokenRequest(prompt=[1, 2, 3], max_new_tokens=20, sampling=SamplingConfig(seed=3))


class _Never(LateEveryOther):
    def ready(self, seconds: float) -> bool:
        return False


class _NeverSettled(LateEveryOther):
    def settled(self, seconds: float) -> bool:
        return False


class _Ends(LateEveryOther):
    """Its worker ends after two tokens."""

    def ready(self, seconds: float) -> bool:
        if self._count > 1:
            return True
        raise OSError("the worker has ended")


def _request(**fields: Any) -> TokenRequest:
    return TokenRequest(**{**vars(_PLAIN), **fields})


def _tokens(*requests: TokenRequest) -> list[Any]:
    engine, ends = Engine(HashSlots(3)), Ends()
    received: list[Any] = []
    for request in requests:
        kept, listener = ends.listen()
        engine.submit(request, listener)
        received.append(kept)
    ends.wait(len(requests))
    engine.close()
    return received


@pytest.mark.parametrize("kind", [_Never, _NeverSettled])
def test_an_answer_that_waits_for_ever_holds_up_no_other(kind: Any) -> None:
    (truth,) = _tokens(_PLAIN)
    engine, ends = Engine(HashSlots(3)), Ends()
    stuck, on_stuck = ends.listen()
    constraint = kind(41, 3)
    ticket = engine.submit(_request(constraint=constraint), on_stuck)
    for _ in range(3):
        other, on_other = ends.listen()
        engine.submit(_PLAIN, on_other)
        ends.wait(1)
        assert other.tokens == truth.tokens
    assert not stuck.ended
    ticket.cancel()
    ends.wait(1)
    assert stuck.end.reason == "cancelled"
    assert constraint.closed
    engine.close()


def test_an_answer_that_waits_for_ever_ends_at_its_deadline() -> None:
    (stuck,) = _tokens(_request(constraint=_Never(41, 3), deadline=0.05))
    assert (stuck.end.reason, stuck.tokens) == ("deadline", [])


@pytest.mark.parametrize("count", range(1, 9))
@pytest.mark.parametrize("most", [1, 4, 20])
def test_late_masks_give_the_same_answer(count: int, most: int) -> None:
    (truth,) = _tokens(_request(constraint=EveryOther(41, count), max_new_tokens=most))
    constraint = LateEveryOther(41, count)
    late, plain = _tokens(_request(constraint=constraint, max_new_tokens=most), _PLAIN)
    assert (late.tokens, late.end) == (truth.tokens, truth.end)
    assert plain.tokens == _tokens(_PLAIN)[0].tokens
    assert constraint.closed


def test_a_worker_that_ends_ends_its_answer_alone() -> None:
    stuck, plain = _tokens(_request(constraint=_Ends(41, 3)), _PLAIN)
    assert len(stuck.tokens) == 2
    assert stuck.end.reason == "error"
    assert isinstance(stuck.end.error, ConstraintError)
    assert plain.tokens == _tokens(_PLAIN)[0].tokens
