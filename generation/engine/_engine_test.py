"""The engine's thread: answers, cancellation, closing."""

import queue
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from generation import SamplingConfig
from generation.engine import (
    EndEvent,
    Engine,
    EngineClosedError,
    EngineSettings,
    PromptEvent,
    PromptPicture,
    TokenEvent,
    TokenRequest,
)
from generation.engine._hash_slots_testing import HashSlots
from lang_core import InputError


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


@pytest.mark.parametrize(
    ("prompt", "places", "message"),
    [
        ([1, 7, 7, 2], [(1, 3), (2, 3)], "pictures: one has the positions 2 to 3; expected them within 3 to 4"),
        ([1, 7, 7], [(1, 4)], "pictures: one has the positions 1 to 4; expected them within 0 to 3"),
        ([1, 7, 7, 2, 7], [(1, 3)], "pictures: token 7 at position 4 is outside of a picture; expected the image"),
        ([1, 7, 6, 2], [(1, 3)], "pictures: token 6 at position 2 is in a picture; expected the image token 7"),
    ],
)
def test_pictures_stand_in_the_places_of_image_tokens(
    prompt: list[int], places: list[tuple[int, int]], message: str
) -> None:
    engine = Engine(HashSlots())
    pixels = np.zeros((3, 2, 2), np.float32)
    pictures = [PromptPicture(pixels=pixels, start=start, stop=stop) for start, stop in places]
    with pytest.raises(InputError, match=message):
        engine.submit(_request(prompt, pictures=pictures), print)
    assert isinstance(_answer(engine, _request([1, 7]))[-1], EndEvent)  # a token as any other where no picture is
    engine.close()


def test_a_model_that_takes_no_pictures_refuses_them() -> None:
    model = HashSlots()
    model.image_token = None
    engine = Engine(model)
    picture = PromptPicture(pixels=np.zeros((3, 2, 2), np.float32), start=0, stop=1)
    with pytest.raises(InputError, match="pictures: the model takes none: leave them out, or ask one that does"):
        engine.submit(_request([7], pictures=[picture]), print)
    engine.close()


@pytest.mark.parametrize("invariant", [True, False])
def test_pictures_that_run_in_one_call_are_not_cut(monkeypatch: pytest.MonkeyPatch, invariant: bool) -> None:
    model, pieces = HashSlots(chunks=(2, 4, 8), invariant=invariant), []
    run = model.prefill_row

    def noted(token_ids: Sequence[int], row: int, position: int, embeddings: Any = None) -> Any:
        pieces.append((position, position + len(token_ids)))
        return run(token_ids, row, position, embeddings)

    monkeypatch.setattr(model, "prefill_row", noted)
    places = [(3, 9), (10, 16), (18, 24)]
    pixels = np.ones((3, 6, 2), np.float32)
    pictures = [PromptPicture(pixels=pixels * place[0], start=place[0], stop=place[1], whole=True) for place in places]
    prompt = [7 if any(start <= at < stop for start, stop in places) else 1 for at in range(27)]
    engine = Engine(model)
    for _ in range(2):  # the second one goes on from the first one's row
        assert isinstance(_answer(engine, _request(prompt, pictures=pictures))[-1], EndEvent)
    longer = PromptPicture(pixels=np.ones((3, 9, 2), np.float32), start=0, stop=9, whole=True)
    with pytest.raises(InputError, match="pictures: one has 9 tokens, which run in one call; calls take at most 8"):
        engine.submit(_request([7] * 9 + [1], pictures=[longer]), print)
    engine.close()
    ends = {stop for _, stop in pieces}
    assert max(ends) == 27
    assert not [stop for stop in ends for start, end in places if start < stop < end]


def test_a_closed_engine_takes_no_requests() -> None:
    engine = Engine(HashSlots(), EngineSettings())
    assert engine.drain(10)
    with pytest.raises(EngineClosedError, match="the engine is being closed and takes no more requests"):
        engine.submit(_request([1]), print)
    engine.close()
    engine.close()
