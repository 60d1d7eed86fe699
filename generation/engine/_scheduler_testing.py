"""Scheduler whose ticks a test makes by hand."""

from typing import Any

from generation import SamplingConfig
from generation.engine import Drafting, EngineSettings, TokenRequest
from generation.engine._answer import Answer
from generation.engine._hash_slots_testing import HashSlots
from generation.engine._queue import WaitingQueue
from generation.engine._reference_testing import Received
from generation.engine._scheduler import Scheduler


class Bench:
    """Scheduler with a clock that is set by hand.

    Attributes:
        time: seconds.
    """

    def __init__(self, model: HashSlots, drafting: Drafting | None = None, **given: Any) -> None:
        self.time = 0.0
        self.model = model
        self.queue = WaitingQueue(99, lambda: self.time)
        self.scheduler = Scheduler(model, self.queue, EngineSettings(**given), lambda: self.time, drafting=drafting)
        self.answers: list[tuple[Answer, Received]] = []

    def put(self, prompt: list[int], count: int, expires: float | None = None, **given: Any) -> tuple[Answer, Received]:
        request = TokenRequest(prompt=prompt, max_new_tokens=count, **{"sampling": SamplingConfig(), **given})
        received = Received()
        self.answers.append((Answer(request, received, self.model.vocabulary, expires), received))
        self.queue.put(self.answers[-1][0])
        return self.answers[-1]

    def run(self) -> None:
        while self.scheduler.busy or len(self.queue):
            self.scheduler.tick()

    @property
    def slots(self) -> Any:
        return self.scheduler._slots

    @property
    def store(self) -> Any:
        return self.scheduler._prefill.prefixes.store
