"""Every answer is that of the request alone: tokens and log probabilities, whatever runs beside it."""

import os
import threading
from typing import Any

import numpy as np
import pytest

from tapeline.serving import Engine, EngineSettings, TokenRequest, canonical_pieces
from tapeline.serving._answer import Answer
from tapeline.serving._hash_slots_testing import HashSlots
from tapeline.serving._queue import WaitingQueue
from tapeline.serving._reference_testing import Received, alone, random_requests
from tapeline.serving._scheduler import Scheduler

_LONG = os.environ.get("TAPELINE_LONG") == "1"
_COUNT = 1000 if _LONG else 60
_KINDS = [(True, False), (True, True), (False, False), (False, True)]


def _check(received: Received, request: TokenRequest, model: HashSlots) -> None:
    pieces = canonical_pieces(len(request.prompt), model.chunks)
    tokens, reason, scored = alone(model, request, pieces)
    if received.end.reason in ("cancelled", "deadline"):
        tokens = tokens[: len(received.tokens)]
    else:
        assert received.end.reason == reason
    assert received.tokens == tokens
    assert received.prompt in (scored, None)
    assert received.end.error is None


@pytest.mark.parametrize(("invariant", "recurrent"), _KINDS)
@pytest.mark.parametrize("store_bytes", [0, 9_000, 1 << 20])
@pytest.mark.parametrize("stall", [0.0, 1.0])
def test_answers_are_those_of_requests_alone(invariant: bool, recurrent: bool, store_bytes: int, stall: float) -> None:
    model = HashSlots(invariant=invariant, recurrent=recurrent)
    settings = EngineSettings(max_waiting=_COUNT, store_bytes=store_bytes, tick_tokens=24, stall=stall, block_tokens=8)
    time = 0.0
    queue = WaitingQueue(_COUNT, lambda: time)
    scheduler = Scheduler(model, queue, settings, lambda: time)
    random = np.random.default_rng(5)
    makes = random_requests(7, _COUNT, model.vocabulary, model.capacity)
    answers: list[Answer] = []
    received = [Received() for _ in makes]
    while len(answers) < _COUNT or scheduler.busy or len(queue):
        for _ in range(min(int(random.integers(0, 3)), _COUNT - len(answers))):
            expires = time + random.integers(1, 40) if random.random() < 0.2 else None
            answer = Answer(makes[len(answers)](), received[len(answers)], model.vocabulary, expires)
            answers.append(answer)
            queue.put(answer)
        if answers and random.random() < 0.1:
            answers[random.integers(0, len(answers))].cancelled = True
        scheduler.tick()
        assert scheduler.figures().store_bytes <= store_bytes
        time += 1.0
    for make, events in zip(makes, received, strict=True):
        fresh = HashSlots(invariant=invariant, recurrent=recurrent)
        _check(events, make(), fresh)
    figures = scheduler.figures()
    assert sum(figures.ended.values()) == _COUNT
    assert figures.prefix_hits > 0 or recurrent
    assert figures.running == figures.waiting == 0


def test_answers_of_many_threads_are_those_of_requests_alone() -> None:
    engine = Engine(HashSlots(), EngineSettings(max_waiting=_COUNT))
    makes = random_requests(11, _COUNT, 41, 96)
    received = [Received() for _ in makes]
    done = threading.Barrier(5)

    def run(part: int) -> None:
        random = np.random.default_rng(part)
        for index in range(part, _COUNT, 4):
            ticket: Any = engine.submit(makes[index](), received[index])
            if random.random() < 0.1:
                ticket.cancel()
                ticket.cancel()
        done.wait()

    for part in range(4):
        threading.Thread(target=run, args=(part,)).start()
    done.wait()
    assert engine.drain(60)
    engine.close()
    for make, events in zip(makes, received, strict=True):
        _check(events, make(), HashSlots())
