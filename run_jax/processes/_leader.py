"""Rank 0: all other ranks repeat its calls on sessions."""

import contextlib
import itertools
import os
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from lang_core import InputError, ProcessError, TapelineError
from run_jax.processes._channel import Channel
from run_jax.processes._facts import Facts, first_difference
from run_jax.processes._figures import Figures
from run_jax.processes._meeting import Meeting
from run_jax.processes._mirrored import Mirrored, Outcomes, handles, numbered, own
from run_jax.processes._wire import Written

Opener = Callable[[Mapping[str, Any]], tuple[Any, Facts]]
"""Opens a session with these arguments; returns it, and what must be the same on every rank, such as hashes."""

Loss = Callable[[str], object]
"""Ends the process, because another rank has ended or does something else; receives what is to be said."""

_GRACE: Final = 1.0  # seconds, so that whoever started the ranks sees first which one was the first to end
_END: Final = 10.0  # seconds that the other ranks have to end, together with rank 0
_FAILURE: Final = 1.0  # seconds that the news of a dead rank may take to come after the failure that it causes
_SAME: Final = 5.0  # seconds that rank 0 has to fail in the same call as another rank


class Leader:
    """Rank 0 of several: opens sessions on all ranks; whatever is called on them is called on every rank.

    One call runs at a time, in one order on every rank.

    Args:
        meeting: the other ranks.
        opener: opens rank 0's own sessions.
        on_loss: ends the process; by default it prints the error and exits with 1.
    """

    def __init__(self, meeting: Meeting, opener: Opener, on_loss: Loss | None = None) -> None:
        self._channels: Final = meeting.channels
        self._opener: Final = opener
        self._on_loss: Final = on_loss or exit_for
        self._lock: Final = threading.RLock()
        self._calls: Final = itertools.count(1)
        self._free = 1
        self._forgotten: Final[deque[int]] = deque()
        self._failed = False
        self._interrupted = False
        self._outcomes: Final = Outcomes()
        self._opened: Final[dict[int, queue.SimpleQueue[Any]]] = {rank: queue.SimpleQueue() for rank in self._channels}
        self._lost: Final = threading.Event()
        self._ending = False
        self._figures: Final = Figures()
        self._others_figures: Final[dict[int, Mapping[str, float]]] = {}
        self._watchers: Final = [
            threading.Thread(target=self._watch, args=(rank, channel), name=f"rank {rank}", daemon=True)
            for rank, channel in self._channels.items()
        ]
        for watcher in self._watchers:
            watcher.start()

    def open(self, arguments: Mapping[str, Any]) -> Any:
        """Opens a session on every rank.

        Args:
            arguments: those of the opener: texts, numbers.

        Returns:
            The session: calls on it run on every rank.

        Raises:
            InputError: a rank cannot open it, or has something else than rank 0; names the rank.
            ProcessError: a rank cannot be reached.
        """
        with self._lock, self._noting_interrupts():
            call, number = self._told({"open": arguments}), self._free
            self._free += 1
            try:
                session, facts = self._opener(arguments)
            except Exception:
                self._outcomes.done(call, failed=True)
                self._forgotten.append(number)
                self._answers()
                raise
            self._outcomes.done(call, failed=False)
            trouble = self._trouble(facts)
            if trouble is not None:
                session.close()
                self._forgotten.append(number)  # those that have opened it close it
                raise InputError(trouble)
            return Mirrored(self, session, number)

    def call(self, target: Mirrored, method: str, values: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """Calls a method on every rank and returns the result of rank 0; see ``Mirrored``.

        A KeyboardInterrupt cuts the call on rank 0 alone: from then on sessions can only be closed.

        Raises:
            ProcessError: a rank cannot be reached, or an earlier call was interrupted.
        """
        with self._lock, self._noting_interrupts():
            if self._interrupted and method == "close":
                return target.own_object.close()
            message = {
                "target": target.shared_number,
                "method": method,
                "values": handles(values),
                "keywords": handles(keywords),
            }
            call = self._told(message)
            if method == "close":
                self._figures.note(target.own_object)
            try:
                result = getattr(target.own_object, method)(*own(values), **own(keywords))
            except Exception as error:
                self._failed = True
                self._outcomes.done(call, failed=True)
                self._await_loss(error)
                raise
            self._outcomes.done(call, failed=False)
            result, self._free = numbered(result, self._free, lambda item, number: Mirrored(self, item, number))
            return result

    def forget(self, number: int) -> None:
        """Lets the other ranks drop an object with the next call."""
        self._forgotten.append(number)

    def end(self) -> list[Mapping[str, float]]:
        """Lets the other ranks end; nothing can be opened or called afterwards.

        Returns:
            Figures of each rank, see ``Figures``; none of one that has not sent them.
        """
        with self._lock:
            self._ending = True
            for channel in self._channels.values():
                channel.send_last({"end": True})
        for watcher in self._watchers:
            watcher.join(_END)
        return [self._figures.as_json(), *(self._others_figures.get(rank, {}) for rank in self._channels)]

    @contextlib.contextmanager
    def _noting_interrupts(self) -> Iterator[None]:
        """Notes that a KeyboardInterrupt came into a call, even into its message to the other ranks."""
        try:
            yield
        except Exception:
            raise
        except BaseException:
            self._interrupted = True
            raise

    def _told(self, message: Mapping[str, Any]) -> int:
        """Tells every rank of a call and returns its number."""
        if self._interrupted:
            raise ProcessError(
                "rank 0 was interrupted in a call, which the other ranks may have finished: end the ranks, and start "
                "them again"
            )
        call = next(self._calls)
        forgotten = [self._forgotten.popleft() for _ in range(len(self._forgotten))]
        said = {**message, "call": call, "result": self._free, "forgotten": forgotten, "failed": self._failed}
        self._failed = False
        written = Written(said)
        for rank, channel in self._channels.items():
            try:
                channel.send_written(written)
            except OSError as error:
                self._await_loss(error)
                raise ProcessError(f"rank {rank} cannot be reached ({error.strerror or error})") from None
        return call

    def _answers(self) -> dict[int, Any]:
        """Returns the answer of each rank to the last ``open``."""
        return {rank: answers.get() for rank, answers in self._opened.items()}

    def _trouble(self, facts: Facts) -> str | None:
        """Returns why a session that rank 0 has opened is not that of another rank."""
        for rank, answer in self._answers().items():
            if "error" in answer:
                return f"rank {rank}: {answer['error']}"
            difference = first_difference(0, facts, rank, answer["facts"])
            if difference is not None:
                return f"ranks disagree: {difference}: give every rank the same bundle"
        return None

    def _watch(self, rank: int, channel: Channel) -> None:
        """Receives the messages of a rank; ends the process if they report the end of another rank."""
        try:
            while True:
                said = channel.receive()
                if "opened" in said:
                    self._opened[rank].put(said)
                elif "figures" in said:
                    self._others_figures[rank] = said["figures"]
                elif "failed" not in said or not self._outcomes.failed_here(said["failed"], _SAME):
                    self._end_for(f"rank {rank}: {said['error']}")
        except (EOFError, OSError):
            if not (self._ending or self._interrupted):
                self._end_for(f"rank {rank} has ended while it was needed: see its output and its exit status")
        channel.close()

    def _end_for(self, text: str) -> None:
        if self._lost.is_set():
            return
        self._lost.set()
        for channel in self._channels.values():
            channel.send_last({"lost": text})
        self._on_loss(text)

    def _await_loss(self, error: BaseException) -> None:
        """Waits if a failure may be the first sign of another rank's end, which ends this process by itself."""
        refusal = isinstance(error, TapelineError) and error.__cause__ is None and not error.__suppress_context__
        if not refusal and self._lost.wait(_FAILURE):
            time.sleep(2 * _GRACE)


def exit_for(text: str) -> None:
    """Ends the process because of another rank; a thread that is inside of JAX cannot be told otherwise."""
    print(f"error: {text}", file=sys.stderr, flush=True)
    time.sleep(_GRACE)
    os._exit(1)
