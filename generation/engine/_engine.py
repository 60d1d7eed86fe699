"""The engine: one thread that owns a model, and answers requests of any thread."""

import dataclasses
import threading
import time
from collections.abc import Callable
from typing import Final

from generation.engine._archive import PrefixArchive
from generation.engine._drafts import Drafting
from generation.engine._errors import EngineClosedError
from generation.engine._figures import EngineFigures
from generation.engine._request import OnEvent, TokenRequest
from generation.engine._runner import ModelRunner
from generation.engine._settings import EngineSettings
from generation.engine._steps import StepEngine, Ticket


class Engine:
    """Answers requests with a model, several at once. Every answer is that of the request alone, bit for bit."""

    def __init__(
        self,
        model: ModelRunner,
        settings: EngineSettings | None = None,
        *,
        remake: Callable[[], ModelRunner] | None = None,
        drafting: Drafting | None = None,
        on_start: Callable[[], object] = lambda: None,
        archive: PrefixArchive | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts the thread.

        Args:
            model: model, which only the engine may call from now on.
            settings: settings; the defaults if None.
            remake: returns a model with caches made anew, after a call of the model failed; if None, or if it raises,
                the engine closes then.
            drafting: speculation; None for none.
            on_start: called on the thread before it works, as to choose how the thread is scheduled.
            archive: keeps the prefix store while the engine does not run; None keeps nothing.
            clock: seconds that only go up.

        Raises:
            ConfigError: the model cannot verify drafts, or none so long.
        """
        self._clock: Final = clock
        self._on_start: Final = on_start
        self._archive: Final = archive
        self._steps: Final = StepEngine(model, settings, remake=remake, drafting=drafting, clock=clock)
        self._queue: Final = self._steps.queue
        self._closing = False
        self._draining = False
        self._fault: str | None = None
        self._worked_at: float | None = None
        self._idle: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._run, name="tapeline-engine", daemon=True)
        self._thread.start()

    def check_room(self, count: int) -> None:
        """Checks whether some requests could be submitted now: ``StepEngine.check_room``. Any thread may call it."""
        self._steps.check_room(count)

    def submit(self, request: TokenRequest, on_event: OnEvent) -> Ticket:
        """Adds a request to the queue: ``StepEngine.submit``; events come on the engine's thread."""
        return self._steps.submit(request, on_event)

    def figures(self) -> EngineFigures:
        """Returns figures of now. Any thread may call it."""
        figures = self._steps.figures()
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

    def _run(self) -> None:
        error = EngineClosedError("the engine was closed before the answer had ended: ask again")
        try:
            self._on_start()
            if self._archive is not None:
                self._steps.load_prefixes(self._archive)
            while self._await_work():
                self._steps.step()
            self._steps.end(error)
            if self._archive is not None:
                self._steps.save_prefixes(self._archive)
        except EngineClosedError as raised:
            error = raised
            self._fault = "the engine has ended, since the model failed and could not be made anew: see the log"
        except BaseException as raised:
            self._fault = f"the engine has ended by an unexpected {type(raised).__name__}: see the log"
            raise
        finally:
            self._worked_at = None
            self._queue.close(f"the engine is closed ({error}): make another")
            self._steps.end(error)
            self._idle.set()

    def _await_work(self) -> bool:
        """Waits for requests, and returns False once the engine is to be closed."""
        while not self._closing:
            if self._steps.busy:
                self._worked_at = self._clock()
                return True
            self._worked_at = None
            if self._draining:
                self._idle.set()
            self._queue.wait(lambda: self._closing or self._draining > self._idle.is_set())
        return False
