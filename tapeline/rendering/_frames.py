"""Messages over a socket: four bytes of length, then so many bytes."""

import socket
from typing import Final

_LENGTH_BYTES: Final = 4


class FrameError(Exception):
    """The other side has gone, or sends a malformed message."""


def send(connection: socket.socket, message: bytes) -> None:
    """Sends a message.

    Raises:
        OSError: the other side has gone.
    """
    connection.sendall(len(message).to_bytes(_LENGTH_BYTES, "big") + message)


def receive(connection: socket.socket, most: int) -> bytes:
    """Returns the next message.

    Args:
        connection: stream socket.
        most: largest number of bytes.

    Raises:
        FrameError: the other side has gone, or the message is longer.
        OSError: the connection failed, or a timeout of it has passed.
    """
    length = int.from_bytes(_exactly(connection, _LENGTH_BYTES), "big")
    if length > most:
        raise FrameError(f"a message of {length} bytes; expected at most {most}")
    return _exactly(connection, length)


def _exactly(connection: socket.socket, count: int) -> bytes:
    parts: list[bytes] = []
    while count:
        part = connection.recv(min(count, 1 << 20))
        if not part:
            raise FrameError("the other side has gone")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
