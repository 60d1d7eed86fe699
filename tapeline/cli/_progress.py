"""Progress on stderr: a bar on a terminal, lines elsewhere."""

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from rich.progress import Progress, TaskID

from tapeline.cli._events import ProgressEvent
from tapeline.cli._say import say
from tapeline.cli._terminal import bar, steps_bar

_LINE_EVERY_S: Final = 5.0


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
        state = f"{done / 2**20:.0f} of {total / 2**20:.0f} MiB, {speed / 2**20:.0f} MiB/s, {left:.0f} s left"
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

    def step(self, done: int, total: int, name: str) -> None:
        """Shows that a step begins when ``done`` of ``total`` are finished."""
        if not sys.stderr.isatty():
            say(f"{self._label} {done + 1} of {total}: {name}")
            return
        if self._bar is None:
            drawn = steps_bar(sys.stderr)
            self._bar = drawn, drawn.add_task(self._label, total=total, running=name)
            drawn.start()
        drawn, task = self._bar
        drawn.update(task, completed=done, running=name)

    def detail(self, text: str) -> None:
        """Shows where the running step is; on a terminal only."""
        if self._bar is not None:
            drawn, task = self._bar
            drawn.update(task, running=text)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar[0].stop()


class TerminalProgress:
    """Shows events on stderr: messages as lines, bytes as a bar on a terminal and as lines elsewhere.

    Args:
        message: text of an event; a command writes options as flags.
    """

    def __init__(self, message: Callable[[str], str] = str) -> None:
        self._message = message
        self._bytes: ByteProgress | None = None
        self._label = ""

    def __call__(self, event: ProgressEvent) -> None:
        """Shows an event."""
        if event.done is None or event.total is None:
            self.close()
            say(self._message(event.text))
            return
        if self._bytes is None or self._label != event.text:
            self.close()
            self._bytes, self._label = ByteProgress(event.text), event.text
        self._bytes(event.done, event.total)

    def close(self) -> None:
        """Ends the bar."""
        if self._bytes is not None:
            self._bytes.close()
            self._bytes = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
