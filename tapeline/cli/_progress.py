"""Progress on stderr: a bar on a terminal, lines elsewhere."""

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from tqdm import tqdm

from tapeline.cli._events import ProgressEvent
from tapeline.cli._say import say

_LINE_EVERY_S: Final = 5.0


class ByteProgress:
    """Display of bytes done, with speed and remaining time.

    Call it with (done, total) as often as you like; ``close`` or the end of the context ends the bar.
    """

    def __init__(self, label: str) -> None:
        self._label = label
        self._bar: tqdm | None = None
        self._started = time.monotonic()
        self._said = self._started
        self._begun: int | None = None

    def __call__(self, done: int, total: int) -> None:
        """Shows the state. Bytes that the first call reports were done before, so they do not count for the speed."""
        if self._begun is None:
            self._begun = done
        if sys.stderr.isatty():
            if self._bar is None:
                self._bar = tqdm(
                    total=total, desc=self._label, unit="B", unit_scale=True, unit_divisor=1024, initial=done
                )
            self._bar.update(done - self._bar.n)
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
            self._bar.close()


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
