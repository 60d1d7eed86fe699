"""Ranks other than 0: they repeat the calls of rank 0."""

import queue
import threading
from collections.abc import Mapping
from typing import Any, Final

from lang_core import ProcessError, TapelineError
from run_jax.processes._channel import Channel
from run_jax.processes._figures import Figures
from run_jax.processes._leader import Loss, Opener, exit_for
from run_jax.processes._meeting import Meeting
from run_jax.processes._mirrored import numbered
from run_jax.processes._wire import Handle, read_written

_GONE: Final = "rank 0 has ended without a message: see its output and its exit status"


def follow(meeting: Meeting, opener: Opener, on_loss: Loss | None = None) -> None:
    """Repeats the calls of rank 0 until it ends.

    Args:
        meeting: rank 0.
        opener: opens this rank's sessions, as rank 0's opener does.
        on_loss: ends the process if it cannot go on; by default it prints the error and exits with 1.

    Raises:
        ProcessError: rank 0 has ended without a word, another rank has ended, or the two do not do the same.
    """
    _Follower(meeting, opener, on_loss or exit_for).run()


class _Follower:
    """Rank that is told of each call."""

    def __init__(self, meeting: Meeting, opener: Opener, on_loss: Loss) -> None:
        self._rank: Final = meeting.place.rank
        self._channel: Final[Channel] = meeting.channels[0]
        self._opener: Final = opener
        self._on_loss: Final = on_loss
        self._objects: Final[dict[int, Any]] = {}
        self._messages: Final[queue.SimpleQueue[tuple[bytes, memoryview] | None]] = queue.SimpleQueue()
        self._last: tuple[bytes, memoryview] | None = None
        self._busy = False
        self._failed = False
        self._figures: Final = Figures()

    def run(self) -> None:
        threading.Thread(target=self._receive, name="rank 0", daemon=True).start()
        try:
            while self._obey(self._next()):
                self._busy = False
        except ProcessError as error:
            self._channel.send_last({"error": str(error)})
            raise
        else:
            self._drop_all()
            self._channel.send_last({"figures": self._figures.as_json()})
        finally:
            self._drop_all()
            self._channel.close()

    def _receive(self) -> None:
        """Receives messages; if rank 0 has gone while a call runs, that call may never end."""
        try:
            while True:
                self._last = self._channel.receive_written()
                self._messages.put(self._last)
        except (EOFError, OSError):
            last = {} if self._last is None else read_written(*self._last, Handle)
            if self._busy and "end" not in last:
                self._on_loss(last.get("lost", _GONE))
            self._messages.put(None)

    def _next(self) -> Mapping[str, Any]:
        written = self._messages.get()
        if written is None:
            raise ProcessError(_GONE)
        self._busy = True
        return read_written(*written, self._objects.__getitem__)

    def _obey(self, message: Mapping[str, Any]) -> bool:
        """Repeats a call of rank 0; returns False when it ends."""
        if "end" in message:
            return False
        if "lost" in message:
            raise ProcessError(message["lost"])
        if message["failed"] and not self._failed:
            raise ProcessError("a call that failed on rank 0 succeeded here: the ranks are out of step")
        for number in message["forgotten"]:
            self._drop(number)
        self._failed = False
        if "open" in message:
            self._open(message)
        else:
            self._call(message)
        return True

    def _open(self, message: Mapping[str, Any]) -> None:
        answer: dict[str, Any] = {"opened": message["call"]}
        try:
            self._objects[message["result"]], answer["facts"] = self._opener(message["open"])
        except Exception as error:  # noqa: BLE001 - rank 0 says it
            answer["error"] = _text(error)
        self._channel.send(answer)

    def _call(self, message: Mapping[str, Any]) -> None:
        target, first = self._objects[message["target"]], message["result"]
        if message["method"] == "close":
            self._figures.note(target)
        try:
            result = getattr(target, message["method"])(*message["values"], **message["keywords"])
        except Exception as error:  # noqa: BLE001 - rank 0 fails in the same way, or ends
            self._failed = True
            self._channel.send({"failed": message["call"], "error": _text(error)})
            return
        numbered(result, first, self._keep)

    def _drop_all(self) -> None:
        for number in tuple(self._objects):
            self._drop(number)

    def _drop(self, number: int) -> None:
        """Drops an object, and closes it if it is a session."""
        dropped = self._objects.pop(number, None)
        close = getattr(dropped, "close", None)
        if close is not None:
            if not getattr(dropped, "closed", False):
                self._figures.note(dropped)
            close()

    def _keep(self, item: Any, number: int) -> None:
        self._objects[number] = item


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, TapelineError) else f"{type(error).__name__}: {error}"
