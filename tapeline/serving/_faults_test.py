"""The model fails, the constraint fails, the engine is closed: every request gets its end, and none a wrong token."""

import contextlib
import queue
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tapeline.serving import (
    ConstraintError,
    EndEvent,
    Engine,
    EngineClosedError,
    EngineSettings,
    ModelFailedError,
    TokenRequest,
    canonical_pieces,
)
from tapeline.serving._hash_slots_testing import HashSlots
from tapeline.serving._reference_testing import EveryOther, Received, alone
from transformer_core.generation import SamplingConfig


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


def _requests() -> list[TokenRequest]:
    stem = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    prompts = [stem, [*stem, 1, 2], [5], [*stem, 2, 2, 2, 2], stem, [7, 7, 7], [*stem, 1, 2, 3], stem[:4]]
    sampled = SamplingConfig(temperature=1.0, seed=3)
    return [
        TokenRequest(prompt=prompt, max_new_tokens=3, sampling=sampled if index % 2 else SamplingConfig())
        for index, prompt in enumerate(prompts)
    ]


class _Ends:
    """Listener of several requests that waits for their ends."""

    def __init__(self) -> None:
        self.ends: queue.Queue[EndEvent] = queue.Queue()

    def listen(self) -> tuple[Received, Any]:
        received = Received()

        def on_event(event: Any) -> None:
            received(event)
            if isinstance(event, EndEvent):
                self.ends.put(event)

        return received, on_event

    def wait(self, count: int) -> None:
        for _ in range(count):
            self.ends.get(timeout=30)


def _check(received: Received, request: TokenRequest, **kind: Any) -> None:
    model = HashSlots(3, 48, 13, (2, 8), **kind)
    tokens, reason, _ = alone(model, request, canonical_pieces(len(request.prompt), model.chunks))
    if received.end.reason == "error":
        assert isinstance(received.end.error, ModelFailedError)
        assert received.tokens == tokens[: len(received.tokens)]
    else:
        assert (received.tokens, received.end.reason) == (tokens, reason)


@pytest.mark.parametrize("kind", [{}, {"recurrent": True}, {"invariant": False}])
def test_a_failure_at_any_call_ends_what_runs_and_the_rest_is_answered(kind: dict[str, bool]) -> None:
    seen: set[str] = set()
    failed = True
    for fail_at in range(1, 400):
        fuse, ends = _Fuse(fail_at), _Ends()
        made = [_Failing(fuse, **kind), _Failing(_Fuse(0), **kind)]
        models = iter(made)
        settings = EngineSettings(block_tokens=4, tick_tokens=8)
        engine = Engine(next(models), settings, remake=lambda models=models: next(models))
        listeners = [ends.listen() for _ in _requests()]
        for request, (_, on_event) in zip(_requests(), listeners, strict=True):
            engine.submit(request, on_event)
        ends.wait(len(listeners))
        again, on_event = ends.listen()
        engine.submit(_requests()[0], on_event)
        ends.wait(1)
        for request, (received, _) in zip(_requests(), listeners, strict=True):
            _check(received, request, **kind)
        failed = fuse.left <= 0
        assert again.end.reason != "error" or engine.figures().failures == 1
        assert engine.figures().failures == failed
        assert engine.figures().running == engine.figures().waiting == 0
        engine.close()
        if not failed:
            break
        seen.add(made[0].calls[-1])
    assert not failed
    assert {"prefill_row", "decode", "read_row"} <= seen


def test_an_engine_whose_model_cannot_be_made_anew_closes_and_says_so() -> None:
    for remake, message in ((None, r"failed \(RuntimeError: the device is gone\)"), (_no_memory, "made anew .no memo")):
        ends = _Ends()
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
    model, ends, gone = _Failing(_Fuse(fail_at)), _Ends(), list[bool]()
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
    engine, ends = Engine(HashSlots(1), clock=lambda: next(times)), _Ends()
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
    ends = _Ends()
    received, on_event = ends.listen()

    def listen(event: Any) -> None:
        on_event(event)
        engine.close()

    engine.submit(TokenRequest(prompt=[1], max_new_tokens=40, sampling=SamplingConfig()), listen)
    ends.wait(1)
    assert isinstance(received.end.error, EngineClosedError)


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
    engine, ends = Engine(HashSlots(2)), _Ends()
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
    engine, ends = Engine(_NotFinite(2)), _Ends()
    (first, on_first), (second, on_second) = ends.listen(), ends.listen()
    engine.submit(TokenRequest(prompt=[1, 2, 3, 4, 5, 9], max_new_tokens=4, sampling=SamplingConfig()), on_first)
    ends.wait(1)
    engine.submit(TokenRequest(prompt=[1, 2, 3, 4, 5, 8], max_new_tokens=4, sampling=SamplingConfig()), on_second)
    ends.wait(1)
    assert "logits are not finite" in str(first.end.error)
    assert second.end.reason == "length"
    assert second.end.reused_tokens == 0
    engine.close()
