"""The model fails, the constraint fails, the engine is closed: every request gets its end, and none a wrong token."""

import contextlib
import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from generation import SamplingConfig
from generation.engine import (
    Drafting,
    EndEvent,
    Engine,
    EngineClosedError,
    EngineSettings,
    ModelFailedError,
    PromptPicture,
    TokenRequest,
    canonical_pieces,
)
from generation.engine._ends_testing import Ends
from generation.engine._hash_slots_testing import HashSlots
from generation.engine._reference_testing import Received, alone


class _Fuse:
    """Counter of calls that raises once, at one of them."""

    def __init__(self, fail_at: int) -> None:
        self.left = fail_at

    def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise RuntimeError("the device is gone")


class _Failing(HashSlots):
    """Model that fails in a call, or when a prediction is read."""

    def __init__(self, fuse: _Fuse, **given: Any) -> None:
        super().__init__(3, 48, 13, (2, 8), **given)
        self._fuse = fuse

    def _note(self, call: str) -> None:
        super()._note(call)
        self._fuse()

    def _prediction(self, row: int, filled: int) -> Any:
        prediction, fuse = super()._prediction(row, filled), self._fuse

        class Late:
            def logits(self) -> np.ndarray:
                fuse()
                return prediction.logits()

            def likeliest(self) -> int:
                fuse()
                return prediction.likeliest()

        return Late()


class _Repeating:
    """Drafter whose guess is the last token again."""

    def propose(self, history: Sequence[int], count: int) -> Sequence[int]:
        return [history[-1]] * count


def _requests(*, pictures: bool = False) -> list[TokenRequest]:
    """Requests that share beginnings; with pictures in some, of which two are the same."""
    stem = [1, 2, 7, 7, 7, 6, 3, 8, 9]
    prompts = [stem, [*stem, 1, 2], [5], [*stem, 2, 2, 2, 2], stem, [7, 7, 7], [*stem, 1, 2, 3], stem[:4]]
    sampled = SamplingConfig(temperature=1.0, seed=3)
    pool = np.arange(2 * 3 * 3 * 2, dtype=np.float32).reshape(2, 3, 3, 2)
    return [
        TokenRequest(
            prompt=prompt,
            max_new_tokens=3,
            sampling=sampled if index % 2 else SamplingConfig(),
            pictures=[PromptPicture(pixels=pool[index // 4], start=2, stop=5)] if pictures and len(prompt) > 9 else (),
        )
        for index, prompt in enumerate(prompts)
    ]


def _check(received: Received, request: TokenRequest, **kind: Any) -> None:
    model = HashSlots(3, 48, 13, (2, 8), **kind)
    tokens, reason, _ = alone(model, request, canonical_pieces(len(request.prompt), model.chunks))
    if received.end.reason == "error":
        assert isinstance(received.end.error, ModelFailedError)
        assert received.tokens == tokens[: len(received.tokens)]
    else:
        assert (received.tokens, received.end.reason) == (tokens, reason)


@pytest.mark.parametrize("pictures", [False, True])
@pytest.mark.parametrize("kind", [{}, {"recurrent": True}, {"invariant": False}, {"verify_tokens": 4}])
def test_a_failure_at_any_call_ends_what_runs_and_the_rest_is_answered(kind: dict[str, Any], pictures: bool) -> None:
    drafting = Drafting(begin=lambda *_: _Repeating(), rows=2) if "verify_tokens" in kind else None
    asked = partial(_requests, pictures=pictures)
    seen: set[str] = set()
    failed = True
    for fail_at in range(1, 400):
        fuse, ends = _Fuse(fail_at), Ends()
        made = [_Failing(fuse, **kind), _Failing(_Fuse(0), **kind)]
        models = iter(made)
        settings = EngineSettings(block_tokens=4, max_batched_tokens=8)
        engine = Engine(next(models), settings, remake=lambda models=models: next(models), drafting=drafting)
        listeners = [ends.listen() for _ in asked()]
        for request, (_, on_event) in zip(asked(), listeners, strict=True):
            engine.submit(request, on_event)
        ends.wait(len(listeners))
        again, on_event = ends.listen()
        engine.submit(asked()[0], on_event)
        ends.wait(1)
        for request, (received, _) in zip(asked(), listeners, strict=True):
            _check(received, request, **kind)
        failed = fuse.left <= 0
        assert again.end.reason != "error" or engine.figures().failures == 1
        assert engine.figures().failures == failed
        # The last answer's end is told before the engine takes its row away.
        assert engine.drain(60)
        assert engine.figures().running == engine.figures().waiting == 0
        engine.close()
        if not failed:
            break
        seen.add(made[0].calls[-1])
    assert not failed
    expected = {"prefill_row", "decode", "read_row"} | ({"encode_image"} if pictures else set())
    assert expected | ({"verify_row"} if drafting else set()) <= seen


def test_an_engine_whose_model_cannot_be_made_anew_closes_and_says_so() -> None:
    for remake, message in ((None, r"failed \(RuntimeError: the device is gone\)"), (_no_memory, "made anew .no memo")):
        ends = Ends()
        engine = Engine(_Failing(_Fuse(9)), remake=remake)
        listeners = [ends.listen() for _ in range(6)]
        for received, on_event in listeners:
            try:
                engine.submit(_requests()[0], on_event)
            except EngineClosedError:
                on_event(EndEvent("error", None, 0, 0, 0))
            del received
        ends.wait(6)
        assert {received.end.reason for received, _ in listeners} <= {"error", "length"}
        assert engine.drain(10)
        with pytest.raises(EngineClosedError, match=message):
            engine.submit(_requests()[0], print)
        engine.close()


@pytest.mark.parametrize("fail_at", [1, 2, 3, 4])  # calls, and readings of what they predict
def test_a_model_that_failed_is_gone_before_another_is_made(fail_at: int) -> None:
    model, ends, gone = _Failing(_Fuse(fail_at)), Ends(), list[bool]()
    reference = weakref.ref(model)

    def remake() -> HashSlots:
        gone.append(reference() is None)
        return HashSlots()

    engine = Engine(model, remake=remake)
    del model
    received, on_event = ends.listen()
    engine.submit(_requests()[0], on_event)
    ends.wait(1)
    assert engine.drain(10)
    engine.close()
    assert isinstance(received.end.error, ModelFailedError)
    assert gone == [True]


def _no_memory() -> Any:
    raise MemoryError("no memory")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_fault_of_the_engine_itself_leaves_nobody_waiting() -> None:
    times = iter([0.0] * 5)
    engine, ends = Engine(HashSlots(1), clock=lambda: next(times)), Ends()
    listeners = [ends.listen() for _ in range(3)]
    for _, on_event in listeners:
        with contextlib.suppress(StopIteration, EngineClosedError):
            engine.submit(_requests()[0], on_event)
            continue
        on_event(EndEvent("error", None, 0, 0, 0))
    ends.wait(3)
    assert {received.end.reason for received, _ in listeners} == {"error"}
    with pytest.raises((EngineClosedError, StopIteration)):
        engine.submit(_requests()[0], print)
    engine.close()


def test_close_ends_what_runs_and_what_waits() -> None:
    engine = Engine(HashSlots(1, 4000))
    received = [Received() for _ in range(3)]
    for listener in received:
        engine.submit(TokenRequest(prompt=[1], max_new_tokens=3999, sampling=SamplingConfig()), listener)
    assert not engine.drain(0.01)
    engine.close()
    for listener in received:
        assert listener.end.reason == "error"
        assert isinstance(listener.end.error, EngineClosedError)
        assert "the engine was closed before the answer had ended" in str(listener.end.error)


def test_drain_waits_for_all_answers() -> None:
    engine = Engine(HashSlots(2))
    received = [Received() for _ in range(5)]
    for listener in received:
        engine.submit(TokenRequest(prompt=[1], max_new_tokens=40, sampling=SamplingConfig()), listener)
    assert engine.drain(30)
    assert [listener.end.reason for listener in received] == ["length"] * 5
    engine.close()


def test_an_engine_can_be_closed_by_a_listener() -> None:
    engine = Engine(HashSlots(2))
    ends = Ends()
    received, on_event = ends.listen()

    def listen(event: Any) -> None:
        on_event(event)
        engine.close()

    engine.submit(TokenRequest(prompt=[1], max_new_tokens=40, sampling=SamplingConfig()), listen)
    ends.wait(1)
    assert isinstance(received.end.error, EngineClosedError)
