"""Progress of a model's load: the running step, the time so far, and the time left if it is known."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tapeline.cli import ProgressEvent

_RUNNING: Final = " ..."  # ends the text of an event that begins a step
_WAITING: Final = "waiting"
_STARTING: Final = "starting"


@dataclass(frozen=True, slots=True)
class LoadStep:
    """Running step of a load.

    Attributes:
        text: name of the step.
        done: bytes or steps done; None if the step is not counted.
        total: bytes or steps in all; None if the step is not counted.
        seconds: time since the load began.
        seconds_left: estimated time until the end of the step; None if the step is not counted, or has just begun.
    """

    text: str
    done: int | None
    total: int | None
    seconds: float
    seconds_left: float | None


class LoadProgress:
    """Progress of one model's load. The loading thread writes it, and requests read it.

    Args:
        clock: returns the time in seconds.

    >>> times = iter([0.0, 1.0, 3.0, 3.0])
    >>> progress = LoadProgress(lambda: next(times))
    >>> progress.begin()
    >>> progress(ProgressEvent("weights", 0, 4 << 20))
    >>> progress(ProgressEvent("weights", 1 << 20, 4 << 20))
    >>> step = progress.step()
    >>> step.text, step.seconds, step.seconds_left
    ('weights: 1 of 4 MiB', 3.0, 6.0)
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock: Final = clock
        self._lock: Final = threading.Lock()
        self._began: float | None = None
        self._event = ProgressEvent(_WAITING)
        self._counting: tuple[str, float, int] | None = None  # label, time and amount of the first counted event
        self._latest = 0.0  # time of the latest event

    def begin(self) -> None:
        """Begins a load."""
        with self._lock:
            self._began, self._event, self._counting = self._clock(), ProgressEvent(_STARTING), None

    def __call__(self, event: ProgressEvent) -> None:
        """Receives an event; warnings and other messages are not steps, and change nothing."""
        counted = event.done is not None and event.total is not None
        if not counted and not event.text.endswith(_RUNNING):
            return
        with self._lock:
            self._event, self._latest = event, self._clock()
            if not counted:
                self._counting = None
            elif self._counting is None or self._counting[0] != event.text:
                self._counting = event.text, self._latest, event.done or 0

    def enter(self, text: str) -> None:
        """Begins a step that is not counted."""
        self(ProgressEvent(text + _RUNNING))

    def step(self) -> LoadStep:
        """Returns the running step."""
        with self._lock:
            now, event = self._clock(), self._event
            seconds = 0.0 if self._began is None else now - self._began
            text = str(event).removesuffix(_RUNNING)
            return LoadStep(text, event.done, event.total, seconds, self._left(now))

    def _left(self, now: float) -> float | None:
        """Returns the time left of a counted step, from its mean speed up to the latest event."""
        event = self._event
        if self._counting is None or event.done is None or event.total is None:
            return None
        _, began, first = self._counting
        done, seconds = event.done - first, self._latest - began
        if done <= 0 or seconds <= 0:
            return None
        return max(0.0, (event.total - event.done) * seconds / done - (now - self._latest))
