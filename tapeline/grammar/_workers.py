"""Workers: processes that compile grammars and compute masks, which end without harm when a grammar is too hard."""

import contextlib
import json
import os
import select
import socket
import subprocess
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import llguidance

from lang_core import InputError, ProcessError, python_command
from tapeline.grammar import _worker

_IDLE: Final = 4  # workers that wait for work
_TABLE_SECONDS: Final = 300.0
_PACKAGES: Final = str(Path(llguidance.__file__).parent.parent)
_PIECE: Final = 1 << 18
_EXPECTED: Final[Mapping[bytes, int]] = {_worker.START: 1, _worker.FIND: 1, _worker.TOKEN: 2}
ENDING: Final = 0.1
"""Most time in seconds between the end of a connection and that of the process that had it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLimits:
    """Limits of a worker. The kernel ends a worker that exceeds one.

    Attributes:
        compile_cpu_seconds: CPU time of compiling a grammar.
        mask_cpu_seconds: CPU time of a token, and of a mask.
        answer_cpu_seconds: CPU time of an answer.
        memory_bytes: address space, over and above that of the tokenizer's table.
        kept_bytes: address space with which a worker takes another answer.
        reply_seconds: time in which a worker must reply, on a machine that is busy otherwise.
    """

    compile_cpu_seconds: float = 3.0
    mask_cpu_seconds: float = 1.0
    answer_cpu_seconds: float = 30.0
    memory_bytes: int = 256 << 20
    kept_bytes: int = 48 << 20
    reply_seconds: float = 60.0


LIMITS: Final = WorkerLimits()


class WorkerEndedError(ConnectionError):
    """The worker has ended, or has not replied in time."""


class Worker:
    """Worker process of one answer at a time. One thread at a time may use it.

    Args:
        connection: connection to the worker, which may have yet to be forked.
        forks: number of the pool's process that forks the worker; 0 if another worker forks it.

    Attributes:
        outstanding: number of replies that have yet to come.
        replied: whether a reply has come, so that the worker exists.
    """

    def __init__(self, connection: socket.socket, forks: int = 0) -> None:
        connection.setblocking(False)
        self._connection: Final = connection
        self._outgoing: Final = bytearray()
        self._incoming: Final = bytearray()
        self._sent_at = 0.0
        self.forks: Final = forks
        self.outstanding = 0
        self.replied = False
        weakref.finalize(self, connection.close)  # an answer that nobody holds any more ends its worker

    def send(self, kind: bytes, payload: bytes = b"") -> None:
        """Sends a request, without waiting for its replies."""
        self._outgoing.extend(_worker.HEADER.pack(kind, len(payload)) + payload)
        self._sent_at = time.monotonic()
        self.outstanding += _EXPECTED[kind]
        with contextlib.suppress(ConnectionError):  # `receive` raises it again
            self._flush()

    def fork(self, connection: socket.socket) -> None:
        """Has a worker that waits for work fork another one for a socket, with the grammars that it has compiled.

        Raises:
            OSError: the worker has ended.
        """
        self._connection.sendall(_worker.HEADER.pack(_worker.FORK, 0))
        socket.send_fds(self._connection, [b"+"], [connection.fileno()])

    def receive(self, seconds: float) -> tuple[bytes, bytes] | None:
        """Returns kind and payload of the next reply, or None if it does not come within some seconds.

        Raises:
            WorkerEndedError: the worker has ended, or its time to reply is over.
        """
        end = time.monotonic() + seconds
        while True:
            frame = self._frame()
            if frame is not None:
                self.outstanding -= 1
                self.replied = True
                self._sent_at = time.monotonic()
                return frame
            try:
                self._flush()
                self._read()
            except BlockingIOError:
                now = time.monotonic()
                if now - self._sent_at > LIMITS.reply_seconds:
                    raise WorkerEndedError("the worker has not replied in time") from None
                if now >= end:
                    return None
                self._wait(end - now)
            except ConnectionError as error:
                raise WorkerEndedError("the worker has ended") from error

    def is_idle(self) -> bool:
        """Returns True once all replies have come, which are dropped.

        Raises:
            WorkerEndedError: the worker has ended.
        """
        if self._connection.fileno() < 0:  # the garbage collector closed it, and its constraint gave it back afterwards
            raise WorkerEndedError("the worker has ended")
        while self.outstanding:
            if self.receive(0.0) is None:
                return False
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        if poll.poll(0):
            raise WorkerEndedError("the worker has ended")
        return True

    def ended(self, seconds: float) -> bool:
        """Returns True if a worker that only forks others has ended; waits some seconds for a worker that is ending."""
        return _ended(self._connection, seconds)

    def close(self) -> None:
        """Ends the worker: at once, or, if native code runs, when that exceeds its CPU time."""
        self._connection.close()

    def _flush(self) -> None:
        while self._outgoing:
            try:
                count = self._connection.send(self._outgoing[:_PIECE])
            except BlockingIOError:
                return
            del self._outgoing[:count]

    def _read(self) -> None:
        part = self._connection.recv(_PIECE)
        if not part:
            raise ConnectionResetError
        self._incoming.extend(part)

    def _frame(self) -> tuple[bytes, bytes] | None:
        size = _worker.HEADER.size
        if len(self._incoming) < size:
            return None
        kind, length = _worker.HEADER.unpack_from(self._incoming)
        if len(self._incoming) < size + length:
            return None
        payload = bytes(self._incoming[size : size + length])
        del self._incoming[: size + length]
        return kind, payload

    def _wait(self, seconds: float) -> None:
        poll = select.poll()
        poll.register(self._connection, select.POLLIN | (select.POLLOUT if self._outgoing else 0))
        poll.poll(seconds * 1000)


class WorkerPool:
    """Workers of one tokenizer. Any thread may call it.

    Attributes:
        vocabulary: number of the table's ids.
        compiled: number of grammars that workers have compiled.
    """

    def __init__(self, tokenizer: str, end: int) -> None:
        """Starts the process that builds the table, and waits for it.

        Args:
            tokenizer: tokenizer in JSON, with the end as an added token.
            end: id of the end.

        Raises:
            InputError: the tokenizer's tokens are not bytes; the message is the library's.
            ProcessError: the process has ended.
        """
        self._first: Final = json.dumps({"tokenizer": tokenizer, "end": end, "limits": asdict(LIMITS)}).encode()
        self._idle: Final[deque[Worker]] = deque()
        self._starting: Final = threading.Lock()
        self._counting: Final = threading.Lock()
        self._forks = 1  # number of the process that forks workers
        self.compiled = 0
        self._control, self.vocabulary = self._start()

    def acquire(self) -> Worker:
        """Returns a worker that waits for work, or a new one.

        Raises:
            OSError: a process or socket cannot be made.
        """
        worker = self._waiting()
        if worker is not None:
            return worker
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                forks = self._pass(theirs)
        except BaseException:
            ours.close()
            raise
        return Worker(ours, forks)

    def lost(self, worker: Worker, seconds: float) -> bool:
        """Returns True if a worker of ``acquire`` has ended because it was never forked: its request can be sent again.

        Args:
            worker: worker that has ended.
            seconds: most time to wait for the end of the process that forks workers.
        """
        if worker.replied:
            return False
        with self._starting:
            return worker.forks != self._forks or _ended(self._control, min(seconds, ENDING))

    def count(self, kind: bytes, payload: bytes) -> None:
        """Counts the grammar that the reply to a START says was compiled."""
        if kind == _worker.REFUSED or (kind == _worker.MASK and payload[0] & _worker.COMPILED):
            with self._counting:
                self.compiled += 1

    def release(self, worker: Worker) -> None:
        """Takes a worker back, for another answer."""
        self._idle.append(worker)
        while len(self._idle) > _IDLE:
            with contextlib.suppress(IndexError):  # another thread took it
                self._idle.popleft().close()

    def _waiting(self) -> Worker | None:
        """Returns the worker that was used last and has nothing to do."""
        busy: list[Worker] = []
        free: Worker | None = None
        while free is None:
            try:
                worker = self._idle.pop()
            except IndexError:
                break
            try:
                if worker.is_idle():
                    free = worker
                else:
                    busy.append(worker)
            except WorkerEndedError:
                worker.close()
        for worker in reversed(busy):
            self._idle.appendleft(worker)
        return free

    def _pass(self, connection: socket.socket) -> int:
        """Sends a worker's socket to the process that forks workers, which is started again if it has ended.

        Returns the number of that process, which may end before it forks: see ``lost``.
        """
        with self._starting:
            try:
                socket.send_fds(self._control, [b"+"], [connection.fileno()])
            except ConnectionError:
                self._control.close()
                self._control, _ = self._start()
                self._forks += 1
                socket.send_fds(self._control, [b"+"], [connection.fileno()])
            return self._forks

    def _start(self) -> tuple[socket.socket, int]:
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                python_command("-S", _worker.__file__),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": _PACKAGES},
                start_new_session=True,  # signals of the terminal are for this process
            )
        weakref.finalize(self, _end, ours, process)
        ours.settimeout(_TABLE_SECONDS)
        try:
            _worker.send(ours, _worker.START, self._first)
            reply = _worker.receive(ours)
        except OSError as error:
            raise ProcessError(f"the process that computes masks of grammars failed ({error})") from error
        if reply is None:
            raise ProcessError("the process that computes masks of grammars ended while it read the tokenizer")
        kind, payload = reply
        if kind == _worker.TABLE_REFUSED:
            raise InputError(payload.decode())
        ours.settimeout(None)
        return ours, int(payload)


def _ended(connection: socket.socket, seconds: float) -> bool:
    """Returns True if the process that only forks workers has closed its side; waits some seconds for that."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _end(control: socket.socket, process: subprocess.Popen[Any]) -> None:
    control.close()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:  # it builds a table
        process.kill()
        process.wait()
