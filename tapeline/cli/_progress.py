"""Progress on stderr: a bar on a terminal, lines elsewhere."""

import sys
import time
from types import TracebackType
from typing import Final, Self

from tqdm import tqdm

from tapeline.cli._say import say

_LINE_EVERY_S: Final = 5.0


class ByteProgress:
    """Bytes done of a whole, with speed and remaining time.

    Call it with (done, total) as often as you like; as a context manager it ends the bar.
    """

    def __init__(self, label: str) -> None:
        self._label = label
        self._bar: tqdm | None = None
        self._started = time.monotonic()
        self._said = self._started
        self._begun: int | None = None

    def __call__(self, done: int, total: int) -> None:
        """Shows the state. What the first call calls done was done before: it says nothing of the speed."""
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
        if self._bar is not None:
            self._bar.close()
