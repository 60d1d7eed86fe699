"""Measures the phases of an export: time, and memory of this process."""

import resource
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

_PAGE: Final = resource.getpagesize()
# Shorter peaks may be missed.
_INTERVAL_S: Final = 0.002


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """Resident bytes: all of them, and those that are not backed by a file."""

    rss: int
    anonymous: int


def memory_now() -> ProcessMemory:
    """Reads this process's memory from ``/proc/self/statm`` of Linux."""
    with open("/proc/self/statm", "rb") as statm:
        _, resident, shared, *_ = map(int, statm.read().split())
    return ProcessMemory(resident * _PAGE, (resident - shared) * _PAGE)


@dataclass(slots=True)
class PhaseCost:
    """Seconds of a phase, and its peak of memory minus the level after imports, in bytes."""

    seconds: float = 0.0
    rss_delta_bytes: int = 0
    anonymous_delta_bytes: int = 0


class PhaseMeter:
    """Meter of phases against the level of memory at its construction, which should follow the imports."""

    def __init__(self) -> None:
        self.base = memory_now()
        self.phases: dict[str, PhaseCost] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measures the block; a phase that is entered again adds up times and keeps the highest peak."""
        cost = self.phases.setdefault(name, PhaseCost())
        done = threading.Event()
        sampler = threading.Thread(target=self._sample, args=(cost, done), daemon=True)
        started = time.perf_counter()
        sampler.start()
        try:
            yield
        finally:
            done.set()
            sampler.join()
            cost.seconds += time.perf_counter() - started

    def _sample(self, cost: PhaseCost, done: threading.Event) -> None:
        while True:
            last = done.wait(_INTERVAL_S)
            now = memory_now()
            cost.rss_delta_bytes = max(cost.rss_delta_bytes, now.rss - self.base.rss)
            cost.anonymous_delta_bytes = max(cost.anonymous_delta_bytes, now.anonymous - self.base.anonymous)
            if last:
                return
