"""Batches of the texts of several requests."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from lang_core import InputError
from tapeline.running import TextArray
from tapeline.server._turns import SerialExecutor


@dataclass(frozen=True, slots=True)
class TextSettings:
    """Settings that the texts of a batch have in common.

    Attributes:
        prompt_name: name of a prompt of the model; its default if None.
        truncate: whether texts that are longer than the model reads are truncated, and not refused.
        raw: whether the results of a classifier are logits, and not scores.
    """

    prompt_name: str | None = None
    truncate: bool = True
    raw: bool = False


@dataclass(slots=True, eq=False)
class _Job:
    """Texts of a request, and the results so far."""

    texts: Sequence[str]
    settings: TextSettings
    parts: list[TextArray] = field(default_factory=list)
    count: int = 0  # texts that have results
    error: BaseException | None = None

    @property
    def is_finished(self) -> bool:
        return self.error is not None or self.count == len(self.texts)


class TextBatches:
    """Calls of a model on the texts of all requests that wait.

    Calls do not wait for further requests: while a call runs, requests gather, and the next call takes their texts. A
    call takes a bounded number of texts, and an equal share of each request, so that a request with many texts does not
    hold up the others for longer than a call.

    Args:
        turns: turns of the model's calls.
        call: embeds texts with some settings; is called in a thread, one call at a time.
        most: largest number of texts of a call.
    """

    def __init__(
        self, turns: SerialExecutor, call: Callable[[Sequence[str], TextSettings], TextArray], most: int = 64
    ) -> None:
        self._turns: Final = turns
        self._call: Final = call
        self._most: Final = most
        self._waiting: Final[deque[_Job]] = deque()

    async def result(self, texts: Sequence[str], settings: TextSettings) -> TextArray:
        """Returns a row for each text.

        Raises:
            InputError: a text of this request is refused.
            BusyError: too many requests wait.
        """
        if not texts:
            return await asyncio.to_thread(self._call, texts, settings)
        job = _Job(texts, settings)
        self._waiting.append(job)
        again = False
        try:
            while not job.is_finished:
                async with self._turns.turn(again=again):
                    if not job.is_finished:
                        await self._run()
                again = True
        finally:
            if job in self._waiting:
                self._waiting.remove(job)
        if job.error is not None:
            raise job.error
        return TextArray.joined(job.parts)

    async def _run(self) -> None:
        """Runs a call on texts of the first request that waits, and of others with its settings."""
        settings = self._waiting[0].settings
        shares = self._shares([job for job in self._waiting if job.settings == settings])
        texts = [text for job, count in shares for text in job.texts[job.count : job.count + count]]
        try:
            results = await asyncio.to_thread(self._call, texts, settings)
        except InputError as error:
            if len(shares) == 1:
                self._end(shares[0][0], error)
                return
            for job, count in shares:  # a text of one of them is refused, and the others have their results
                await self._run_alone(job, count)
            return
        except Exception as error:  # noqa: BLE001 - every request of the call gets it
            for job, _ in shares:
                self._end(job, error)
            return
        begin = 0
        for job, count in shares:
            self._add(job, results.part(slice(begin, begin + count)))
            begin += count

    async def _run_alone(self, job: _Job, count: int) -> None:
        try:
            results = await asyncio.to_thread(self._call, job.texts[job.count : job.count + count], job.settings)
        except Exception as error:  # noqa: BLE001 - the request gets it
            self._end(job, error)
            return
        self._add(job, results)

    def _shares(self, jobs: Sequence[_Job]) -> list[tuple[_Job, int]]:
        """Returns how many texts of each request a call takes, of as many requests as have a share."""
        left = {id(job): len(job.texts) - job.count for job in jobs}
        room, shares = self._most, dict.fromkeys(left, 0)
        while room and any(left.values()):
            share = max(1, room // sum(1 for count in left.values() if count))
            for key in left:
                taken = min(share, left[key], room)
                left[key], shares[key], room = left[key] - taken, shares[key] + taken, room - taken
        return [(job, shares[id(job)]) for job in jobs if shares[id(job)]]

    def _add(self, job: _Job, results: TextArray) -> None:
        """Adds results of a request, which is the last one in the line if it has further texts."""
        job.parts.append(results)
        job.count += len(results)
        if job in self._waiting:
            self._waiting.remove(job)
            if not job.is_finished:
                self._waiting.append(job)

    def _end(self, job: _Job, error: BaseException) -> None:
        job.error = error
        if job in self._waiting:
            self._waiting.remove(job)
