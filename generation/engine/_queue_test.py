"""The queue: clients in turn, each in order, and no more than it may hold."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generation import SamplingConfig
from generation.engine import BusyError, Engine, EngineClosedError, EngineSettings, TokenRequest
from generation.engine._answer import Answer
from generation.engine._hash_slots_testing import HashSlots
from generation.engine._queue import WaitingQueue
from lang_core import ConfigError, InputError


def _answer(client: str) -> Answer:
    request = TokenRequest(prompt=[1], sampling=SamplingConfig(), max_new_tokens=1, client=client)
    return Answer(request, lambda _: None, 3, None)


@given(events=st.lists(st.sampled_from(["a", "b", "c", "d", "take", "take"]), max_size=80))
def test_a_client_waits_for_one_request_of_each_other_at_most(events: list[str]) -> None:
    queue = WaitingQueue(100)
    lines: dict[str, list[Answer]] = {client: [] for client in "abcd"}
    passed: dict[str, list[str]] = {client: [] for client in "abcd"}
    for event in events:
        if event != "take":
            lines[event].append(_answer(event))
            queue.put(lines[event][-1])
        elif answer := queue.take():
            client = answer.request.client
            assert lines[client].pop(0) is answer
            passed[client] = []
            for other, line in lines.items():
                passed[other] = [*passed[other], client] if line and other != client else passed[other]
                assert len(passed[other]) == len(set(passed[other]))
        else:
            assert not any(lines.values())
        assert len(queue) == sum(map(len, lines.values()))


def test_a_full_queue_says_when_to_ask_again() -> None:
    time = 0.0
    queue = WaitingQueue(2, lambda: time)
    for _ in range(30):
        queue.put(_answer("a"))
        queue.put(_answer("b"))
        queue.take()
        time += 5.0
        queue.take()
        time += 5.0
    queue.put(_answer("a"))
    queue.put(_answer("b"))
    with pytest.raises(BusyError, match="2 requests wait already, and no more are taken: ask again in 5 s, or") as info:
        queue.put(_answer("c"))
    assert info.value.retry_after == pytest.approx(5.0, abs=0.1)


@pytest.mark.parametrize("look", [WaitingQueue.first, WaitingQueue.take])
def test_time_without_requests_is_no_interval(look: Callable[[WaitingQueue], Answer | None]) -> None:
    time = 0.0
    queue = WaitingQueue(1, lambda: time)
    for pause in (0.0, 2.0, 900.0):
        time += pause
        queue.put(_answer("a"))
        queue.take()
        if pause:
            assert look(queue) is None
    queue.put(_answer("a"))
    with pytest.raises(BusyError) as info:
        queue.put(_answer("a"))
    assert info.value.retry_after < 2


def test_a_closed_queue_says_why() -> None:
    queue = WaitingQueue(2)
    queue.put(_answer("a"))
    queue.close("it is over")
    queue.close("it was over before")
    with pytest.raises(EngineClosedError, match="it is over"):
        queue.put(_answer("a"))
    assert queue.take()


@pytest.mark.parametrize(
    ("name", "value", "needed"),
    [
        ("max_waiting", 0, "at least 1"),
        ("deadline", 0.0, "above 0, or None"),
        ("max_batched_tokens", 0, "at least 1"),
        ("target_itl", -0.1, "at least 0"),
        ("largest_chunk", 0, "at least 1"),
        ("store_bytes", -1, r"at least 0 \(0 is off\)"),
        ("block_tokens", 0, "at least 1"),
    ],
)
def test_settings_name_what_is_wrong(name: str, value: Any, needed: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}={value} is out of range: give a value that is {needed}"):
        EngineSettings(**{name: value})


@pytest.mark.parametrize(
    ("name", "value", "needed"),
    [
        ("max_new_tokens", 0, "an integer of at least 1"),
        ("logprobs", -1, "an integer of at least 0"),
        ("prompt_logprobs", -1, "an integer of at least 0"),
        ("deadline", 0.0, "seconds, more than 0"),
    ],
)
def test_requests_name_what_is_wrong(name: str, value: Any, needed: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}={value} is out of range: give {needed}"):
        TokenRequest(**{"prompt": [1], "sampling": SamplingConfig(), "max_new_tokens": 1, name: value})


def test_room_for_several_requests_is_checked_before_they_are_made() -> None:
    queue = WaitingQueue(3)
    queue.put(_answer("a"))
    queue.check_room(2)
    with pytest.raises(BusyError, match="1 requests wait already"):
        queue.check_room(3)
    assert len(queue) == 1
    queue.close("it is closed")
    with pytest.raises(EngineClosedError, match="it is closed"):
        queue.check_room(1)


def test_an_engine_has_room_for_its_rows_and_its_queue() -> None:
    slots = HashSlots()
    engine = Engine(slots, EngineSettings(max_waiting=2))
    engine.check_room(slots.slots + 2)
    with pytest.raises(
        InputError, match=rf"{slots.slots + 3} answers at once are more than the {slots.slots + 2} that"
    ):
        engine.check_room(slots.slots + 3)
    engine.close()
    with pytest.raises(EngineClosedError):
        engine.check_room(1)
