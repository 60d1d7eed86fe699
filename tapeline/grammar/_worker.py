"""Program of the processes that compile grammars and compute masks. It is started with the table of one tokenizer.

The first process builds the table and then forks a worker for each socket that it receives: workers share the table's
memory. A worker limits itself. The kernel ends it when a step exceeds its CPU time or its memory, whatever native code
it runs, so nobody has to watch it. Every process ends when its socket is closed.

Frames are a kind (one byte), a length (u32, little-endian) and bytes. ``START`` and ``FIND`` have one reply, ``TOKEN``
has two, ``SETTLED`` and ``MASK``, ``FORK`` has none. The bytes of ``START`` are a salt of ``SALT_BYTES`` and a grammar:
compiled grammars are kept by both, so that a client with one salt cannot learn which grammars others sent.
"""

import gc
import json
import math
import os
import resource
import signal
import socket
import struct
import sys
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

START, TOKEN, FIND, FORK = b"S", b"T", b"F", b"K"
"""Kinds of requests: begin an answer with a grammar; a token of the answer; the first grammar that fails alike; another
worker for a socket, which follows with one byte, with the grammars that this worker has compiled."""
READY, REFUSED, TABLE_REFUSED = b"R", b"E", b"X"
"""Kinds of replies: the table is built; the grammar, or the table, is refused, with the library's message."""
SETTLED, MASK, FOUND, RENEW = b"A", b"M", b"I", b"N"
"""Kinds of replies: a token was taken; the mask; what FIND found; start again with another worker."""
ACCEPTED, COMPLETE, STOPPED, COMPILED = 1, 2, 4, 8
"""Bits of the first byte of SETTLED and MASK; COMPILED is set after START if the grammar had to be compiled."""

HEADER: Final = struct.Struct("<cI")
SALT_BYTES: Final = 32
_ID: Final = struct.Struct("<I")
_KEPT: Final = 8  # compiled grammars of a worker
_NICE: Final = 10  # the engine comes first
_FUEL: Final = 100_000  # a tenth of the default: (a{1000}){1000} is refused in 50 ms and not in 2 s
_ITEMS: Final = 20_000  # ten times the default, for objects with thousands of optional properties


class _Worker:
    """Answers the requests of one socket, one answer after the other."""

    def __init__(self, connection: socket.socket, table: LLTokenizer, limits: Mapping[str, Any]) -> None:
        self._connection = connection
        self._forked = False
        self._table: Final = table
        self._limits: Final = limits
        self._parser: Final = LLParserLimits(initial_lexer_fuel=_FUEL, max_items_in_row=_ITEMS, verbose_errors=False)
        self._kept: Final[OrderedDict[bytes, tuple[LLMatcher, list[str]]]] = OrderedDict()
        self._base = _address_space()
        self._matcher: LLMatcher | None = None
        if self._base:
            most = self._base + int(limits["memory_bytes"])
            resource.setrlimit(resource.RLIMIT_AS, (most, most))

    def run(self) -> None:
        while (request := receive(self._connection)) is not None:
            kind, payload = request
            if kind == START:
                self._start(payload)
            elif kind == TOKEN:
                self._take(_ID.unpack(payload)[0])
            elif kind == FORK:
                self._fork()
            else:
                self._find(json.loads(payload))

    def _fork(self) -> None:
        """Forks a worker for a socket that comes."""
        _, descriptors, _, _ = socket.recv_fds(self._connection, 1, 1)
        with socket.socket(fileno=descriptors[0]) as connection:
            if os.fork() == 0:
                self._connection.close()
                self._connection = connection.dup()
                self._forked = True

    def _start(self, salted: bytes) -> None:
        """Begins an answer, and sends its first mask."""
        self._matcher = None
        forked, self._forked = self._forked, False
        if not forked and _address_space() - self._base > self._limits["kept_bytes"]:
            self._send(RENEW)
            return
        used = resource.getrusage(resource.RUSAGE_SELF)
        most = math.ceil(used.ru_utime + used.ru_stime + self._limits["answer_cpu_seconds"])
        resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))
        with self._limited("compile_cpu_seconds"):
            known = salted in self._kept
            compiled, warnings = self._compiled(salted)
            error = compiled.get_error() if compiled.is_error() else ""
        if error or warnings:
            self._send(REFUSED, json.dumps([error, warnings]).encode())
            return
        self._matcher = compiled.deep_copy()
        self._mask(0 if known else COMPILED)

    def _compiled(self, salted: bytes) -> tuple[LLMatcher, list[str]]:
        if salted in self._kept:
            self._kept.move_to_end(salted)
            return self._kept[salted]
        matcher = self._matcher_of(salted[SALT_BYTES:].decode())
        compiled = matcher, list(matcher.get_grammar_warnings())
        self._kept[salted] = compiled
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return compiled

    def _matcher_of(self, source: str) -> LLMatcher:
        return LLMatcher(self._table, source, log_level=0, limits=self._parser)

    def _take(self, token_id: int) -> None:
        """Notes a token, says so, and sends the mask after it."""
        matcher = self._matcher
        if matcher is None:  # the grammar was refused, and the client knows
            self._send(SETTLED, b"\0")
            self._send(MASK, b"\0")
            return
        with self._limited("mask_cpu_seconds"):
            accepted = matcher.consume_token(token_id)
        if not accepted:
            message = matcher.get_error().encode()
            self._send(SETTLED, b"\0" + message)
            self._send(MASK, b"\0" + message)
            return
        stopped = matcher.is_stopped()
        self._send(SETTLED, bytes([ACCEPTED | COMPLETE * matcher.is_accepting() | STOPPED * stopped]))
        if stopped and not matcher.is_error():
            self._send(MASK, bytes([ACCEPTED | COMPLETE * matcher.is_accepting() | STOPPED]))
        else:
            self._mask()

    def _mask(self, more: int = 0) -> None:
        matcher = self._matcher
        assert matcher
        with self._limited("mask_cpu_seconds"):
            bits = matcher.compute_bitmask()
        if matcher.is_error():  # its mask would allow the end
            self._send(MASK, b"\0" + matcher.get_error().encode())
            return
        flags = ACCEPTED | COMPLETE * matcher.is_accepting() | STOPPED * matcher.is_stopped()
        self._send(MASK, bytes([flags | more]) + bits)

    def _find(self, request: Mapping[str, Any]) -> None:
        """Sends the index of the first grammar that fails with a message, or -1."""
        index = -1
        with self._limited("compile_cpu_seconds"):
            for number, source in enumerate(request["sources"]):
                if self._matcher_of(source).get_error() == request["message"]:
                    index = number
                    break
        self._send(FOUND, str(index).encode())

    @contextmanager
    def _limited(self, name: str) -> Iterator[None]:
        """Has the kernel end the process when the block takes more CPU time than a limit."""
        signal.setitimer(signal.ITIMER_PROF, self._limits[name])
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def _send(self, kind: bytes, payload: bytes = b"") -> None:
        send(self._connection, kind, payload)


def send(connection: socket.socket, kind: bytes, payload: bytes = b"") -> None:
    """Sends a frame on a socket that blocks."""
    connection.sendall(HEADER.pack(kind, len(payload)) + payload)


def receive(connection: socket.socket) -> tuple[bytes, bytes] | None:
    """Returns kind and payload of the next frame of a socket that blocks; None when the other side has closed it."""
    header = _read(connection, HEADER.size)
    if header is None:
        return None
    kind, size = HEADER.unpack(header)
    payload = _read(connection, size)
    return None if payload is None else (kind, payload)


def _read(connection: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        try:
            part = connection.recv(min(size - len(parts), 1 << 20))
        except ConnectionError:
            return None
        if not part:
            return None
        parts += part
    return bytes(parts)


def _address_space() -> int:
    """Returns the size of the process's address space in bytes; 0 if there is no /proc."""
    try:
        pages = Path("/proc/self/statm").read_bytes().split()[0]
    except OSError:
        return 0
    return int(pages) * resource.getpagesize()


def _serve_forks(control: socket.socket, table: LLTokenizer, limits: Mapping[str, Any]) -> None:
    """Forks a worker for each socket that comes."""
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not data:
            return
        with socket.socket(fileno=descriptors[0]) as connection:
            if os.fork() == 0:
                control.close()
                status = 1
                try:
                    _Worker(connection, table, limits).run()
                    status = 0
                except (ConnectionError, MemoryError):  # the client is gone, or sees that the worker is
                    pass
                finally:
                    os._exit(status)


def main() -> None:
    """Builds the table that the first frame on stdin describes, and forks workers until stdin is closed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the process that reads the answers ends this one
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # workers that have ended leave nothing
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with socket.socket(fileno=os.dup(0)) as control:
        first = receive(control)
        if first is None:
            return
        settings = json.loads(first[1])
        try:
            table = LLTokenizer(settings["tokenizer"], eos_token=settings["end"])
        except ValueError as error:
            send(control, TABLE_REFUSED, str(error).encode())
            return
        os.nice(_NICE)
        del first
        gc.collect()
        gc.freeze()  # the collector does not touch what workers share
        send(control, READY, str(table.vocab_size).encode())
        _serve_forks(control, table, settings["limits"])


if __name__ == "__main__":
    sys.exit(main())
