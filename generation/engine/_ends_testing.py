"""Listener that waits for the ends of answers."""

import queue
from typing import Any

from generation.engine import EndEvent
from generation.engine._reference_testing import Received


class Ends:
    """Listener of several requests that waits for their ends."""

    def __init__(self) -> None:
        """Has heard of none."""
        self.ends: queue.Queue[EndEvent] = queue.Queue()

    def listen(self) -> tuple[Received, Any]:
        """Returns what an answer's events are kept in, and its listener."""
        received = Received()

        def on_event(event: Any) -> None:
            received(event)
            if isinstance(event, EndEvent):
                self.ends.put(event)

        return received, on_event

    def wait(self, count: int) -> None:
        """Waits until so many more answers have ended."""
        for _ in range(count):
            self.ends.get(timeout=30)
