"""The engine: one thread that owns a model, and answers requests of any thread."""

import dataclasses
import threading
import time
from collections.abc import Callable
from typing import Final

from generation.engine._answer import Answer
from generation.engine._drafts import Drafting
from generation.engine._errors import EngineClosedError, ModelFailedError
from generation.engine._figures import EngineFigures
from generation.engine._pictures import check_pictures
from generation.engine._queue import WaitingQueue
from generation.engine._request import OnEvent, TokenRequest
from generation.engine._scheduler import Scheduler
from generation.engine._settings import EngineSettings
from generation.engine._slots import SlotModel
from lang_core import InputError


class Ticket:
    """Handle of a request that was submitted."""

    def __init__(self, answer: Answer, queue: WaitingQueue) -> None:
        """Holds a request's answer."""
        self._answer: Final = answer
        self._queue: Final = queue

    def cancel(self) -> None:
        """Ends the answer within one step; does nothing if it has ended. Any thread may call it, more than once."""
        self._answer.cancelled = True
        self._queue.wake()


class Engine:
    """Answers requests with a model, several at once. Every answer is that of the request alone, bit for bit."""

    def __init__(
        self,
        model: SlotModel,
        settings: EngineSettings | None = None,
        *,
        remake: Callable[[], SlotModel] | None = None,
        drafting: Drafting | None = None,
        on_start: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts the thread.

        Args:
            model: model, which no one else may call from now on.
            settings: settings; the defaults if None.
            remake: returns a model with caches made anew, after a call of the model failed; if None, or if it raises,
                the engine closes then.
            drafting: speculation; None for none.
            on_start: called on the thread before it works, as to choose how the thread is scheduled.
            clock: seconds that only go up.

        Raises:
            ConfigError: the model cannot verify drafts, or none so long.
        """
        self._settings: Final = settings or EngineSettings()
        self._clock: Final = clock
        self._remake: Final = remake
        self._on_start: Final = on_start
        self._capacity: Final = model.capacity
        self._slots: Final = model.slots
        self._vocabulary: Final = model.vocabulary
        self._image_token: Final = model.image_token
        self._queue: Final = WaitingQueue(self._settings.max_waiting, clock)
        self._scheduler: Final = Scheduler(model, self._queue, self._settings, clock, drafting=drafting)
        self._closing = False
        self._draining = False
        self._fault: str | None = None
        self._worked_at: float | None = None
        self._idle: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._run, name="tapeline-engine", daemon=True)
        self._thread.start()

    def check_room(self, count: int) -> None:
        """Checks whether some requests could be submitted now, before work is put into them. Any thread may call it.

        Requests that rows are free for need no room in the queue, and count as if all rows were free.

        Args:
            count: number of requests.

        Raises:
            InputError: they are more than the queue and the rows take at once.
            BusyError: the queue has no room for them.
            EngineClosedError: the engine is closed, or about to be.
        """
        most = self._settings.max_waiting + self._slots
        if count > most:
            raise InputError(f"{count} answers at once are more than the {most} that the engine takes: ask for fewer")
        self._queue.check_room(max(1, count - self._slots))

    def submit(self, request: TokenRequest, on_event: OnEvent) -> Ticket:
        """Adds a request to the queue. Any thread may call it.

        Args:
            request: the request.
            on_event: is told what happens, on the engine's thread; it must not block. If it raises, the answer is
                cancelled.

        Raises:
            InputError: the prompt is empty, has ids that are none, or does not fit with its new tokens; or its pictures
                are not in the places of its image tokens, one behind the other.
            BusyError: the queue is full.
            EngineClosedError: the engine is closed, or about to be.
        """
        self._check(request)
        seconds = self._settings.deadline if request.deadline is None else request.deadline
        expires = None if seconds is None else self._clock() + seconds
        answer = Answer(request, on_event, self._vocabulary, expires)
        self._queue.put(answer)
        return Ticket(answer, self._queue)

    def figures(self) -> EngineFigures:
        """Returns figures of now. Any thread may call it."""
        figures = self._scheduler.figures()
        return dataclasses.replace(figures, up=int(self._thread.is_alive()), stalled_seconds=self._stalled_seconds())

    def fault(self, seconds: float) -> str | None:
        """Returns why the engine cannot answer, or None if it can. Any thread may call it.

        Args:
            seconds: time without progress, while there is work, after which the engine counts as stuck; 0 for never.
        """
        if not self._thread.is_alive():
            return self._fault or "the engine's thread has ended"
        stalled = self._stalled_seconds()
        if not seconds or stalled < seconds:
            return None
        return f"the engine has made no progress for {stalled:.0f} s: a call of the model does not return"

    def drain(self, seconds: float) -> bool:
        """Takes no more requests and waits until all have ended.

        Args:
            seconds: time to wait at most; ``close`` ends those that are left.

        Returns:
            Whether all have ended.
        """
        self._queue.close("the engine is being closed and takes no more requests: ask another")
        self._draining = True
        self._queue.wake()
        return self._idle.wait(seconds)

    def close(self) -> None:
        """Ends all requests with ``EngineClosedError`` and the thread; does nothing the second time."""
        self._queue.close("the engine was closed: make another")
        self._closing = True
        self._queue.wake()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _stalled_seconds(self) -> float:
        """Returns the time since the last progress; 0 while there is no work."""
        worked = self._worked_at
        return 0.0 if worked is None else max(0.0, self._clock() - worked)

    def _check(self, request: TokenRequest) -> None:
        check_pictures(request.pictures, request.prompt, self._image_token)
        if request.pictures and request.prompt_logprobs is not None:
            raise InputError("`prompt_logprobs` runs a prompt token by token, which pictures are not: leave it out")
        prompt, wanted = request.prompt, len(request.prompt) + request.max_new_tokens - 1
        if not len(prompt):
            raise InputError("the prompt has no token: give at least one")
        bad = [token_id for token_id in (min(prompt), max(prompt)) if not 0 <= token_id < self._vocabulary]
        if bad:
            raise InputError(f"token id {bad[0]} of the prompt: expected 0 to {self._vocabulary - 1}")
        if wanted > self._capacity:
            raise InputError(
                f"a prompt of {len(prompt)} tokens and {request.max_new_tokens} new ones need {wanted} positions, and "
                f"{self._capacity} are there: shorten the prompt, or ask for fewer new tokens"
            )

    def _run(self) -> None:
        error = EngineClosedError("the engine was closed before the answer had ended: ask again")
        try:
            self._on_start()
            while self._await_work():
                self._step()
        except EngineClosedError as raised:
            error = raised
            self._fault = "the engine has ended, since the model failed and could not be made anew: see the log"
        except BaseException as raised:
            self._fault = f"the engine has ended by an unexpected {type(raised).__name__}: see the log"
            raise
        finally:
            self._worked_at = None
            self._queue.close(f"the engine is closed ({error}): make another")
            self._scheduler.end(error)
            self._idle.set()

    def _await_work(self) -> bool:
        """Waits for requests, and returns False once the engine is to be closed."""
        while not self._closing:
            if self._scheduler.busy or len(self._queue):
                self._worked_at = self._clock()
                return True
            self._worked_at = None
            if self._draining:
                self._idle.set()
            self._queue.wait(lambda: self._closing or self._draining > self._idle.is_set())
        return False

    def _step(self) -> None:
        try:
            self._scheduler.tick()
        except ModelFailedError as error:
            self._scheduler.fail(error)
            self._scheduler.replace(self._made_anew(error))

    def _made_anew(self, failure: ModelFailedError) -> SlotModel:
        if self._remake is None:
            raise EngineClosedError(f"the engine has closed: {failure}") from failure
        try:
            return self._remake()
        except Exception as error:
            raise EngineClosedError(
                f"the engine has closed: {failure}, and the model could not be made anew ({error})"
            ) from error
