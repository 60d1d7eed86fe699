"""Templates rendered in other processes: a pool of workers, each with limits of memory and time.

A program starts none before it renders a template. The workers are forked from one small process
(``tapeline.rendering``), so a new worker takes about a millisecond, and holds nothing of a model.
"""

import atexit
import contextlib
import json
import marshal
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from lang_core import InputError, ProcessError, json_value, python_command
from tapeline.rendering import ERROR, FrameError, RenderLimits, receive, send

_PROGRAM: Final = """import json, sys
sys.path[:] = json.loads(sys.argv[1])
from tapeline.rendering import serve_workers
serve_workers(int(sys.argv[2]))
"""
_WORKERS: Final = 8  # at once; further calls wait
_IDLE: Final = 4  # workers that stay
_GRACE: Final = 5.0  # seconds beside the time of a rendering, in which the worker itself ends it
_END_SECONDS: Final = 2.0
_ENDING: Final = 0.1  # seconds between the end of a connection and that of the process that had it
_BYTES: Final = 4  # of a character of UTF-8, at most
_REPLY: Final = 1 << 16  # bytes of a reply beside its text


class TemplateFault(Exception):
    """Template that does not parse, or fails on its arguments.

    Attributes:
        kind: ``syntax``, ``limit``, ``security``, ``undefined``, ``refused``, ``memory``, ``depth`` or ``failed``.
        message: message of the template language.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind: Final = kind
        self.message: Final = message


class Renderer:
    """Pool of processes that render templates. Any thread may call it.

    Args:
        workers: largest number of processes that render at once.
    """

    def __init__(self, workers: int = _WORKERS) -> None:
        self._most: Final = workers
        self._reset()

    def check(self, text: str, limits: RenderLimits) -> None:
        """Parses a template.

        Raises:
            TemplateFault: it is none, or takes too long.
            ProcessError: a process cannot be started.
        """
        self._call(text, None, limits)

    def render(self, text: str, variables: Mapping[str, Any], limits: RenderLimits) -> str:
        """Returns the text that a template makes.

        Args:
            text: the template.
            variables: its variables: values of JSON, tuples, sets and bytes.
            limits: limits of time and size.

        Raises:
            TemplateFault: it is not a template, fails, takes too long or makes too much text.
            InputError: a variable is an object that cannot be sent to another process.
            ProcessError: a process cannot be started.
        """
        return self._call(text, variables, limits).decode("utf-8", "surrogatepass")

    def close(self) -> None:
        """Ends all processes."""
        with self._changed:
            idle, self._idle = self._idle, []
            server, self._server = self._server, None
        for worker in idle:
            worker.close()
        if server is not None:
            server.close()

    def _reset(self) -> None:
        """Begins without processes, also in a fork of this process, to which its parent's do not answer."""
        self._changed = threading.Condition()
        self._idle: list[socket.socket] = []
        self._working = 0
        self._server: _Server | None = None

    def _call(self, text: str, variables: Mapping[str, Any] | None, limits: RenderLimits) -> bytes:
        call = _packed((text, variables, limits.seconds, limits.characters, limits.used))
        worker, server = self._take()
        try:
            return self._asked(worker, call, limits)
        except TemplateFault as error:
            if error.kind != "memory" or not self._ended(server):
                raise
        worker, _ = self._take()  # that worker was never forked, or ended with the process that forks
        return self._asked(worker, call, limits)

    def _asked(self, worker: socket.socket, call: bytes, limits: RenderLimits) -> bytes:
        """Returns the reply of a worker to a call."""
        began, reply = time.monotonic(), b""
        seconds = limits.seconds - limits.used
        try:
            worker.settimeout(seconds + _GRACE)
            send(worker, call)
            reply = receive(worker, limits.characters * _BYTES + _REPLY)
        except (OSError, FrameError) as error:
            late = isinstance(error, TimeoutError) or time.monotonic() - began >= seconds
            raise _killed(limits, late=late) from error
        finally:
            self._put(worker, whole=bool(reply))
        if reply[:1] == ERROR:
            kind, message = json_value(reply[1:])
            raise TemplateFault(kind, message)
        return reply[1:]

    def _ended(self, server: "_Server") -> bool:
        """Returns True if a process that forks workers has ended: a worker that it had yet to fork never answers."""
        with self._changed:
            return server is not self._server or server.ended()

    def _take(self) -> "tuple[socket.socket, _Server]":
        """Returns the connection to a worker that waits for a call, and the process that forks workers."""
        with self._changed:
            self._changed.wait_for(lambda: self._working < self._most)
            self._working += 1
            while self._idle:
                worker = self._idle.pop()
                if self._server is not None and _waits(worker):
                    return worker, self._server
                worker.close()
        try:
            return self._started()
        except BaseException:
            self._gone()
            raise

    def _put(self, worker: socket.socket, *, whole: bool) -> None:
        """Takes a worker back; one that did not answer to the end is left to its limits."""
        with self._changed:
            keep = whole and len(self._idle) < _IDLE
            if keep:
                self._idle.append(worker)
        if not keep:
            worker.close()
        self._gone()

    def _gone(self) -> None:
        with self._changed:
            self._working -= 1
            self._changed.notify()

    def _started(self) -> "tuple[socket.socket, _Server]":
        """Returns the connection to a new worker; the process that forks it is started anew if it has ended."""
        with self._changed:
            if self._server is not None:
                with contextlib.suppress(OSError):
                    return self._server.fork(), self._server
                self._server.close()
            self._server = _Server()
            try:
                return self._server.fork(), self._server
            except OSError as error:
                raise ProcessError(f"templates: the process that renders them cannot be started: {error}") from error


@dataclass
class _Server:
    """Process from which workers are forked."""

    control: socket.socket = field(init=False)
    process: "subprocess.Popen[bytes]" = field(init=False)

    def __post_init__(self) -> None:
        self.control, theirs = socket.socketpair()
        with theirs:
            command = python_command("-c", _PROGRAM, json.dumps(sys.path), str(theirs.fileno()))
            try:
                self.process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    process_group=0,  # Ctrl-C is for the program
                )
            except OSError as error:
                self.control.close()
                raise ProcessError(f"templates: the process that renders them cannot be started: {error}") from error

    def fork(self) -> socket.socket:
        """Returns the connection to a new worker.

        Raises:
            OSError: the process has ended.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self.control, [b"w"], [theirs.fileno()])
            except OSError:
                ours.close()
                raise
        return ours

    def ended(self) -> bool:
        """Returns True if the process has ended; waits a moment for one that is ending."""
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        return bool(poll.poll(_ENDING * 1000))

    def close(self) -> None:
        """Ends the process."""
        self.control.close()
        try:
            self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _waits(worker: socket.socket) -> bool:
    """Returns False if a worker has ended, or sends unexpected messages."""
    try:
        worker.settimeout(0)
        worker.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _killed(limits: RenderLimits, *, late: bool) -> TemplateFault:
    if late:
        return TemplateFault(
            "limit", f"the chat template takes longer than {limits.seconds:g} s: send less, or mend it"
        )
    return TemplateFault("memory", "")


def _packed(call: tuple[Any, ...]) -> bytes:
    """Returns a call as bytes.

    Raises:
        InputError: a variable cannot be sent.
    """
    try:
        return marshal.dumps(call)
    except ValueError:
        return marshal.dumps(_plain(call, ()))


def _plain(value: Any, path: tuple[str, ...]) -> Any:
    """Returns a value made of Python's own types alone.

    Raises:
        InputError: it has an object of another type, or nests too deep.
    """
    if value is None or type(value) in (bool, int, float, str, bytes):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if len(path) > 200:
        raise InputError(f"{'.'.join(path[:8])}..: values of a chat template nest deeper than 200: send flatter ones")
    if isinstance(value, Mapping):
        return {_plain(key, path): _plain(one, (*path, str(key)[:40])) for key, one in value.items()}
    if isinstance(value, Sequence):
        parts = [_plain(one, (*path, str(place))) for place, one in enumerate(value)]
        return tuple(parts) if isinstance(value, tuple) else parts
    if isinstance(value, set | frozenset):
        return {_plain(one, path) for one in value}
    name, kind = ".".join(path[1:]) or "variables", type(value).__name__
    raise InputError(f"{name}: expected a value of JSON for a chat template; found {kind}")


RENDERER: Final = Renderer()
"""Pool of this process."""

atexit.register(RENDERER.close)
os.register_at_fork(after_in_child=RENDERER._reset)
