"""Messages between two ranks over a socket, both of which know a secret."""

import contextlib
import hashlib
import hmac
import secrets
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any, Final

from lang_core import ProcessError
from run_jax.processes._wire import Handle, Written, read_written

_HEAD: Final = struct.Struct("<IQ")  # bytes of the text, bytes of the arrays
_LARGEST_TEXT: Final = 64 << 20
_NONCE: Final = 32
_DIGEST: Final = 32
_SILENCE: Final = 2  # seconds without a sign of the other machine, after which it is asked for one
_LAST_WORD: Final = 0.5  # seconds
_ASKED: Final = 3  # times that it is asked before it is taken for gone


class Channel:
    """Messages to and from another rank; one thread may send while another one receives.

    Args:
        connection: connected socket, which the channel closes.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket: Final = connection
        self._sending: Final = threading.Lock()
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _watch_machine(connection)

    def prove(self, secret: bytes, *, answers: bool) -> None:
        """Shows the other side that this one knows the secret, and has it show the same.

        Args:
            secret: the secret.
            answers: True on the side that was connected to.

        Raises:
            ProcessError: the other side does not know it.
        """
        mine = secrets.token_bytes(_NONCE)
        self._socket.sendall(mine)
        theirs = bytes(self._exactly(_NONCE))
        self._socket.sendall(_digest(secret, theirs, answers))
        if not hmac.compare_digest(bytes(self._exactly(_DIGEST)), _digest(secret, mine, not answers)):
            raise ProcessError("the other process has another token: it is of another run, or no rank at all")

    def send(self, value: Any) -> None:
        """Sends a value; see ``Written``.

        Raises:
            InputError: there is something in it that cannot be sent.
            OSError: the other side has gone.
        """
        self.send_written(Written(value))

    def send_written(self, written: Written) -> None:
        """Sends a message that is written already, as ``send`` does."""
        with self._sending:
            self._write(written)

    def send_last(self, value: Any) -> None:
        """Sends a last message, unless another thread is stuck in sending; failures are ignored."""
        if self._sending.acquire(timeout=_LAST_WORD):
            with contextlib.suppress(OSError):
                self._write(Written(value))
            self._sending.release()

    def receive(self, object_of: Callable[[int], Any] = Handle) -> Any:
        """Waits for a value and returns it.

        Args:
            object_of: returns the object with a number.

        Raises:
            EOFError: the other side has gone.
            OSError: the time is up that ``wait_at_most`` has set, or the other machine does not answer.
        """
        text, payload = self.receive_written()
        return read_written(text, payload, object_of)

    def receive_written(self) -> tuple[bytes, memoryview]:
        """Waits for a message and returns its text and its arrays; raises as ``receive``."""
        text_bytes, array_bytes = _HEAD.unpack(self._exactly(_HEAD.size))
        if text_bytes > _LARGEST_TEXT:
            raise EOFError(f"a message of {text_bytes} bytes")
        return bytes(self._exactly(text_bytes)), self._exactly(array_bytes)

    def wait_at_most(self, seconds: float | None) -> None:
        """Sets the longest time that receiving waits; None waits for ever."""
        self._socket.settimeout(seconds)

    def close(self) -> None:
        """Closes the socket; whoever waits for a message of it wakes up."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _write(self, written: Written) -> None:
        head = _HEAD.pack(len(written.text), sum(array.nbytes for array in written.arrays))
        self._socket.sendall(head + written.text)
        for array in written.arrays:
            if array.nbytes:
                self._socket.sendall(array.reshape(-1).view("u1").data)

    def _exactly(self, count: int) -> memoryview:
        memory = memoryview(bytearray(count))
        at = 0
        while at < count:
            received = self._socket.recv_into(memory[at:])
            if not received:
                raise EOFError("the other rank has closed the connection")
            at += received
        return memory


def _digest(secret: bytes, nonce: bytes, answers: bool) -> bytes:
    return hmac.digest(secret, nonce + bytes([answers]), hashlib.sha256)


def _watch_machine(connection: socket.socket) -> None:
    """Has the kernel find out within seconds that the other machine is gone, without a word of it."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _SILENCE)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _SILENCE)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _ASKED)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * _SILENCE * (_ASKED + 1))
