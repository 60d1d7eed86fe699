"""Progress on stderr: a bar on a terminal, lines elsewhere."""

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, TypeVar

from rich.progress import Progress, TaskID

from tapeline.cli._events import ProgressEvent, byte_unit
from tapeline.cli._say import say
from tapeline.cli._terminal import bar, clock, steps_bar

_LINE_EVERY_S: Final = 5.0
_WAITING: Final = " ..."


class ByteProgress:
    """Display of bytes done, with speed and remaining time.

    Call it with (done, total) as often as you like; ``close`` or the end of the context ends the bar.
    """

    def __init__(self, label: str) -> None:
        self._label = label
        self._bar: tuple[Progress, TaskID] | None = None
        self._started = time.monotonic()
        self._said = self._started
        self._begun: int | None = None

    def __call__(self, done: int, total: int) -> None:
        """Shows the state. Bytes that the first call reports were done before, so they do not count for the speed."""
        if self._begun is None:
            self._begun = done
        if sys.stderr.isatty():
            self._draw(done, total)
            return
        now = time.monotonic()
        if done < total and now - self._said < _LINE_EVERY_S:
            return
        self._said = now
        speed = (done - self._begun) / max(now - self._started, 1e-9)
        left = (total - done) / speed if speed else 0.0
        unit, size = byte_unit(total)
        state = f"{done / size:.0f} of {total / size:.0f} {unit}, {speed / size:.0f} {unit}/s, {left:.0f} s left"
        say(f"{self._label}: {state}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the bar."""
        if self._bar is not None:
            self._bar[0].stop()

    def _draw(self, done: int, total: int) -> None:
        if self._bar is None:
            drawn = bar(sys.stderr)
            self._bar = drawn, drawn.add_task(self._label, total=total, completed=done)
            drawn.start()
        drawn, task = self._bar
        drawn.update(task, completed=done)


class StepProgress:
    """Display of steps done and of the one that runs: a bar on a terminal, a line per step elsewhere.

    Args:
        label: activity that the steps belong to.
    """

    def __init__(self, label: str) -> None:
        self._label = label
        self._bar: tuple[Progress, TaskID] | None = None
        self._started = time.monotonic()

    def step(self, done: int, total: int, name: str) -> None:
        """Shows that a step begins when ``done`` of ``total`` are finished, and how long the rest will take."""
        if not sys.stderr.isatty():
            say(f"{self._label} {done + 1} of {total}: {name}{self._left(done, total)}")
            return
        if self._bar is None:
            drawn = steps_bar(sys.stderr)
            self._bar = drawn, drawn.add_task(self._label, total=total, running=name)
            drawn.start()
        drawn, task = self._bar
        drawn.update(task, completed=done, running=name)

    def _left(self, done: int, total: int) -> str:
        passed = time.monotonic() - self._started
        left = passed * (total - done) / done if done else 0.0
        return f", {left:.0f} s left" if left >= 1 else ""

    def close(self) -> None:
        """Ends the bar."""
        if self._bar is not None:
            self._bar[0].stop()

    def detail(self, text: str) -> None:
        """Shows the progress of the running step; on a terminal only."""
        if self._bar is not None:
            drawn, task = self._bar
            drawn.update(task, running=text)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Clock:
    """Message with a clock that runs until the next one, on a terminal: for a step that cannot be counted."""

    def __init__(self, text: str) -> None:
        self._drawn = clock(sys.stderr)
        self._drawn.add_task(text, total=None)
        self._drawn.start()

    def close(self) -> None:
        """Stops the clock; the message stays."""
        self._drawn.stop()


_Shown = TypeVar("_Shown", ByteProgress, StepProgress)


class TerminalProgress:
    """Shows events on stderr: bytes and steps as bars on a terminal, as lines elsewhere; messages as lines.

    On a terminal a message of a step that cannot be counted, which ends with three dots, has a clock.

    Args:
        message: text of an event; a command writes options as flags.
    """

    def __init__(self, message: Callable[[str], str] = str) -> None:
        self._message = message
        self._shown: ByteProgress | StepProgress | _Clock | None = None
        self._label = ""

    def __call__(self, event: ProgressEvent) -> None:
        """Shows an event."""
        if event.done is None or event.total is None:
            self._say(self._message(event.text))
        elif event.step is None:
            self._counted(event.text, ByteProgress)(event.done, event.total)
        else:
            self._counted(event.text, StepProgress).step(event.done, event.total, event.step)

    def _say(self, text: str) -> None:
        self.close()
        if text.endswith(_WAITING) and sys.stderr.isatty():
            self._shown = _Clock(text)
        else:
            say(text)

    def _counted(self, label: str, kind: type[_Shown]) -> _Shown:
        if isinstance(self._shown, kind) and self._label == label:
            return self._shown
        self.close()
        shown = kind(label)
        self._shown, self._label = shown, label
        return shown

    def close(self) -> None:
        """Ends the bar or the clock."""
        if self._shown is not None:
            self._shown.close()
            self._shown = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
