"""Every answer is that of the request alone: tokens and log probabilities, whatever runs beside it."""

import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from generation.engine import Drafting, Engine, EngineSettings, TokenRequest, canonical_pieces
from generation.engine._answer import Answer
from generation.engine._drafts_testing import OftenRight
from generation.engine._hash_slots_testing import HashSlots
from generation.engine._paged_slots_testing import PagedHashSlots
from generation.engine._queue import WaitingQueue
from generation.engine._reference_testing import (
    PictureKind,
    Received,
    alone,
    follow_up,
    random_requests,
    with_pictures,
)
from generation.engine._scheduler import Scheduler

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


class _Load:
    """Requests that come at random, go on at random when they have ended, and leave at random.

    Attributes:
        made: requests, each with a constraint that has seen nothing, and what was received.
    """

    def __init__(
        self,
        model: HashSlots,
        settings: EngineSettings,
        seed: int,
        *,
        pictures: PictureKind | None = None,
        drafting: Drafting | None = None,
    ) -> None:
        self.time = 0.0
        self.model = model
        self.queue = WaitingQueue(_COUNT, lambda: self.time)
        self.scheduler = Scheduler(model, self.queue, settings, lambda: self.time, drafting=drafting)
        self.made: list[tuple[Callable[[], TokenRequest], Received]] = []
        self._random = np.random.default_rng(seed)
        self._makes = random_requests(seed, _COUNT, model.vocabulary, model.capacity)
        if pictures:
            self._makes = [with_pictures(make, self._random, pictures) for make in self._makes]
        self._answers: list[Answer] = []

    def run(self, check: Callable[[], None]) -> None:
        while len(self.made) < _COUNT or self.scheduler.busy or len(self.queue):
            for _ in range(min(int(self._random.integers(0, 3)), _COUNT - len(self.made))):
                self._submit()
            if self._answers and self._random.random() < 0.1:
                self._answers[self._random.integers(0, len(self._answers))].cancelled = True
            self.scheduler.tick()
            check()
            self.time += 1.0

    def _submit(self) -> None:
        make, received = self._next(), Received()
        expires = self.time + self._random.integers(1, 40) if self._random.random() < 0.2 else None
        answer = Answer(make(), received, self.model.vocabulary, expires)
        self.made.append((make, received))
        self._answers.append(answer)
        self.queue.put(answer)

    def _next(self) -> Callable[[], TokenRequest]:
        done = [(make, received) for make, received in self.made if received.ended]
        if done and self._random.random() < 0.3:
            make, received = done[self._random.integers(0, len(done))]
            request = follow_up(make(), received)
            if len(request.prompt) + request.max_new_tokens <= self.model.capacity:
                return lambda: request
        return self._makes.pop()


@pytest.mark.parametrize(("invariant", "recurrent"), _KINDS)
@pytest.mark.parametrize("store_bytes", [0, 9_000, 1 << 20])
@pytest.mark.parametrize("target_itl", [0.0, 1.0])
def test_answers_are_those_of_requests_alone(
    invariant: bool, recurrent: bool, store_bytes: int, target_itl: float
) -> None:
    model = HashSlots(invariant=invariant, recurrent=recurrent)
    settings = EngineSettings(
        max_waiting=_COUNT, store_bytes=store_bytes, max_batched_tokens=24, target_itl=target_itl, block_tokens=8
    )
    load = _Load(model, settings, 7)

    def check() -> None:
        assert load.scheduler.figures().store_bytes <= store_bytes

    load.run(check)
    for make, received in load.made:
        _check(received, make(), HashSlots(invariant=invariant, recurrent=recurrent))
    figures = load.scheduler.figures()
    assert sum(figures.ended.values()) == _COUNT
    assert figures.prefix_hits > 0 or recurrent
    assert figures.running == figures.waiting == 0


@pytest.mark.parametrize(("invariant", "recurrent"), _KINDS)
@pytest.mark.parametrize(("store_bytes", "picture_bytes"), [(0, 0), (9_000, 50), (1 << 20, 1 << 20)])
def test_answers_to_pictures_are_those_of_requests_alone(
    invariant: bool, recurrent: bool, store_bytes: int, picture_bytes: int
) -> None:
    model = HashSlots(invariant=invariant, recurrent=recurrent)
    settings = EngineSettings(
        max_waiting=_COUNT, store_bytes=store_bytes, picture_bytes=picture_bytes, max_batched_tokens=24, block_tokens=8
    )
    pool = np.random.default_rng(1).standard_normal((3, 3, 5, 2)).astype(np.float32)
    load = _Load(model, settings, 7, pictures=PictureKind(7, 5, list(pool)))
    load.run(lambda: None)
    assert sum(bool(make().pictures) for make, _ in load.made) > _COUNT // 3
    for make, received in load.made:
        _check(received, make(), HashSlots(invariant=invariant, recurrent=recurrent))
    figures = load.scheduler.figures()
    assert figures.prefix_hits > 0 or recurrent
    seen = model.calls.count("encode_image")
    assert seen == 3 if picture_bytes > 50 else seen > 3


@pytest.mark.parametrize(("tokens", "rows"), [(None, 4), (1, 2), (3, 1)])
def test_drafts_change_no_answer(tokens: int | None, rows: int) -> None:
    model = HashSlots(verify_tokens=6)
    drafting = Drafting(begin=lambda row, _: OftenRight(row), tokens=tokens, rows=rows)
    settings = EngineSettings(max_waiting=_COUNT, store_bytes=9_000, max_batched_tokens=24, block_tokens=8)
    load = _Load(model, settings, 6, drafting=drafting)
    load.run(lambda: None)
    for make, received in load.made:
        _check(received, make(), HashSlots())
    figures = load.scheduler.figures()
    assert 0 < figures.accepted_tokens < figures.draft_tokens
    assert "verify_row" in model.calls


@pytest.mark.parametrize("invariant", [True, False])
@pytest.mark.parametrize("pages", [14, 20, 60])
@pytest.mark.parametrize("store_bytes", [0, 9_000])
def test_answers_of_rows_with_few_pages_are_those_of_requests_alone(
    invariant: bool, pages: int, store_bytes: int
) -> None:
    model = PagedHashSlots(pages, invariant=invariant, verify_tokens=6)
    settings = EngineSettings(max_waiting=_COUNT, store_bytes=store_bytes, max_batched_tokens=24, block_tokens=8)
    drafting = Drafting(begin=lambda row, _: OftenRight(row), rows=2) if invariant else None
    load = _Load(model, settings, 13, drafting=drafting)
    usages = list[float]()

    def check() -> None:
        held = {page for row in range(model.slots) for page in model.pool.held(row)}
        assert len(held) + model.pool.free == model.pool.usable
        usages.append(load.scheduler.figures().cache_usage)

    load.run(check)
    for make, received in load.made:
        _check(received, make(), HashSlots(invariant=invariant))
    figures = load.scheduler.figures()
    assert sum(figures.ended.values()) == _COUNT
    assert figures.prefix_hits > 0
    assert 0.0 == usages[-1] < max(usages) <= 1.0
    assert bool(model.pool.refused) == (pages < 60)  # 60 are enough for all rows


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
