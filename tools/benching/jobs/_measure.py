"""Measures time, processor time and memory of a block of code in a measured process; results are JSON.

A measured module is a program: its one argument is JSON, its last line of output is JSON. It imports only what it
measures, and this. One that stays answers line by line instead (``serve_requests``).
"""

import contextlib
import json
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

_PAGE: Final = resource.getpagesize()
_INTERVAL_S: Final = 0.001
# While memory is watched, how long the watcher waits at most for the interpreter's lock.
_SWITCH_S: Final = 0.0005
_RESET_PEAK: Final = "5"  # proc_pid_clear_refs(5): VmHWM becomes what is resident now


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident bytes: all, and those that no file backs."""

    rss: int
    anonymous: int


def memory_now() -> Memory:
    """Reads ``/proc/self/statm``."""
    with open("/proc/self/statm", "rb") as statm:
        _, resident, shared, *_ = map(int, statm.read().split())
    return Memory(resident * _PAGE, (resident - shared) * _PAGE)


@dataclass(slots=True)
class Cost:
    """Time and memory that a block took.

    Attributes:
        seconds: by the clock.
        cpu_seconds: on a core, threads included.
        rss_bytes: the peak over the level at the meter's start, as the kernel kept it (VmHWM).
        anonymous_bytes: the same of what no file backs; 0 unless watched.
    """

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    rss_bytes: int = 0
    anonymous_bytes: int = 0

    def as_json(self) -> dict[str, Any]:
        """The figures by name."""
        return asdict(self)


class Meter:
    """Measures against the level of memory at which it was made: after imports."""

    def __init__(self) -> None:
        # A sandbox may forbid it: then the peak is that of imports at least.
        with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
            file.write(_RESET_PEAK)
        self.base: Final = memory_now()

    @contextlib.contextmanager
    def measure(self, watch: bool) -> Iterator[Cost]:
        """Measures the block.

        Args:
            watch: sample anonymous memory in a thread, which disturbs the times.
        """
        cost = Cost()
        with self._watching(cost) if watch else contextlib.nullcontext():
            began, cpu_began = time.perf_counter(), time.process_time()
            try:
                yield cost
            finally:
                cost.seconds = time.perf_counter() - began
                cost.cpu_seconds = time.process_time() - cpu_began
        cost.rss_bytes = _peak_rss() - self.base.rss

    @contextlib.contextmanager
    def _watching(self, cost: Cost) -> Iterator[None]:
        done = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(cost, done), daemon=True)
        before = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_S)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()
            sys.setswitchinterval(before)

    def _watch(self, cost: Cost, done: threading.Event) -> None:
        last = False
        while not last:
            last = done.wait(_INTERVAL_S)
            cost.anonymous_bytes = max(cost.anonymous_bytes, memory_now().anonymous - self.base.anonymous)


def _peak_rss() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


def serve(job: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Runs a job on the arguments of the command line and prints its result."""
    print(json.dumps(job(json.loads(sys.argv[1]))))


def serve_requests(ready: dict[str, Any], answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Stays until its input ends: says that it is ready, then answers each line of JSON with one."""
    print(json.dumps(ready), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
