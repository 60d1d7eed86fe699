"""The engine's thread: answers, cancellation, closing."""

import queue
import threading
from typing import Any

import pytest

from lang_core import InputError
from tapeline.serving import EndEvent, Engine, EngineClosedError, EngineSettings, PromptEvent, TokenEvent, TokenRequest
from tapeline.serving._hash_slots_testing import HashSlots
from transformer_core.generation import SamplingConfig


def _request(prompt: list[int], count: int = 5, **settings: Any) -> TokenRequest:
    return TokenRequest(prompt=prompt, sampling=SamplingConfig(), max_new_tokens=count, **settings)


def _answer(engine: Engine, request: TokenRequest) -> list[Any]:
    events: queue.Queue[Any] = queue.Queue()
    engine.submit(request, events.put)
    received = [events.get(timeout=30)]
    while not isinstance(received[-1], EndEvent):
        received.append(events.get(timeout=30))
    return received


def test_an_answer_has_its_events_in_order() -> None:
    engine = Engine(HashSlots())
    prompt, *tokens, end = _answer(engine, _request([3, 1, 2], 4))
    assert prompt == PromptEvent(0)
    assert [type(token) for token in tokens] == [TokenEvent] * 4
    assert end == EndEvent("length", None, 3, 4, 0)
    engine.close()


def test_the_thread_is_prepared_before_it_works() -> None:
    threads: list[threading.Thread] = []
    engine = Engine(HashSlots(), on_start=lambda: threads.append(threading.current_thread()))
    _answer(engine, _request([1]))
    engine.close()
    assert [thread.name for thread in threads] == ["tapeline-engine"]


def test_requests_are_checked_before_they_wait() -> None:
    engine = Engine(HashSlots(capacity=8))
    with pytest.raises(InputError, match="the prompt has no token: give at least one"):
        engine.submit(_request([]), print)
    with pytest.raises(InputError, match="token id 41 of the prompt: expected 0 to 40"):
        engine.submit(_request([1, 41]), print)
    with pytest.raises(InputError, match="a prompt of 5 tokens and 5 new ones need 9 positions, and 8 are there: shor"):
        engine.submit(_request([1] * 5), print)
    engine.close()


def test_a_closed_engine_takes_no_requests() -> None:
    engine = Engine(HashSlots(), EngineSettings())
    assert engine.drain(10)
    with pytest.raises(EngineClosedError, match="the engine is being closed and takes no more requests"):
        engine.submit(_request([1]), print)
    engine.close()
    engine.close()
