"""Work on the network in threads of its own, with a bound on the time without any byte."""

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Self

from tapeline.hub._names import HubError

_THREADS: Final = 4
_TICK_S: Final = 0.2
_THREAD: Final = "tapeline-hub"
# Loggers that repeat signed addresses while they try again; what fails in the end is told as one error.
_LOGGERS: Final = ("huggingface_hub.file_download", "huggingface_hub.utils._http")

Job = Callable[[], None]


class Cancelled(Exception):
    """The work of this thread is no longer wanted."""


class Transfer:
    """Bytes that several threads receive.

    Attributes:
        done: bytes so far.
    """

    def __init__(self) -> None:
        self.done = 0
        self._lock: Final = threading.Lock()
        self._moved = time.monotonic()
        self._cancelled = False

    def add(self, count: int) -> None:
        """Counts bytes; 0 says that there is progress of another kind.

        Raises:
            Cancelled: nobody waits for them any more.
        """
        with self._lock:
            self.done += count
            self._moved = time.monotonic()
        if self._cancelled:
            raise Cancelled

    def cancel(self) -> None:
        """Ends every thread at its next bytes."""
        self._cancelled = True

    @property
    def idle_seconds(self) -> float:
        """Time since the last bytes."""
        return time.monotonic() - self._moved


def run_jobs(jobs: Sequence[Job], transfer: Transfer, stall_seconds: float, tick: Job) -> None:
    """Runs jobs, a few at a time, and waits for them.

    A thread that is stuck is left behind; it keeps neither this call nor the end of the process waiting.

    Args:
        jobs: work, in the order in which it is begun.
        transfer: bytes that the jobs receive.
        stall_seconds: longest time without any byte.
        tick: called in this thread from time to time.

    Raises:
        HubError: the transfer stalled for ``stall_seconds``.
        BaseException: the first error of a job.
    """
    waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
    results: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_of_other_threads)  # a second time changes nothing
    for _ in range(min(_THREADS, len(jobs))):
        threading.Thread(target=_work, args=(waiting, results, transfer), name=_THREAD, daemon=True).start()
    transfer.add(0)
    try:
        for _ in jobs:
            error = _next(results, transfer, stall_seconds, tick)
            if error is not None:
                raise error
    except BaseException:
        transfer.cancel()
        raise


def _of_other_threads(record: logging.LogRecord) -> bool:
    return record.threadName != _THREAD


def _next(results: Any, transfer: Transfer, stall_seconds: float, tick: Job) -> BaseException | None:
    """Returns how the next job ended."""
    while True:
        try:
            return results.get(timeout=min(_TICK_S, stall_seconds))
        except queue.Empty:
            tick()
            if transfer.idle_seconds > stall_seconds:
                raise HubError(
                    f"no byte came from the hub for {stall_seconds:g} s: check the connection, or try again later; "
                    "complete files stay in the cache"
                ) from None


def _work(waiting: Any, results: Any, transfer: Transfer) -> None:
    while True:
        try:
            job = waiting.get_nowait()
        except queue.Empty:
            return
        try:
            transfer.add(0)
            job()
        except Cancelled:
            return
        except BaseException as error:  # noqa: BLE001 - raised again where the result is awaited
            results.put(error)
            return
        results.put(None)


def bar_class(transfer: Transfer) -> type:
    """Returns a replacement of tqdm for huggingface_hub; its instances count into ``transfer``."""

    class Bar:
        """Progress bar that shows nothing."""

        def __init__(self, *_: Any, **__: Any) -> None:
            self.n = 0
            self.total: int | None = None

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def update(self, n: float | None = 1) -> None:
            """Counts bytes of a file."""
            transfer.add(int(n or 0))

        def update_transfer(self, n: float | None = 1) -> None:
            """Notes bytes on the wire, which need not be bytes of a file."""
            del n
            transfer.add(0)

        def nothing(self, *_: object, **__: object) -> None:
            """Does nothing."""

        close = refresh = set_postfix_str = set_transfer_postfix_str = set_description = nothing

    return Bar
