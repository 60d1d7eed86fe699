"""HTTP connections that cannot be held open for nothing."""

import asyncio
import socket
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


class GuardedProtocol(H11Protocol):
    """Connection that is closed if its next request does not come, or the client does not read its response.

    Uvicorn itself waits for ever for the head of a request, and for a client that does not read.

    Attributes:
        header_seconds: time in which the head of a request must come.
        stall_seconds: time in which a client must read a part of its response.
    """

    header_seconds = 30.0
    stall_seconds = 60.0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Sends every part at once, and waits for the first request."""
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
            # asyncio sets it only if the protocol number of a socket says TCP, which that of accepted ones does not.
            # Without it a response of two parts waits for the client's delayed acknowledgement.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Takes data, and waits for the rest of a request's head."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._wait_for_head()
        else:
            self._head_timer = _cancelled(self._head_timer)

    def on_response_complete(self) -> None:
        """Leaves the connection to uvicorn's timer for connections without a request."""
        self._head_timer = _cancelled(self._head_timer)
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Waits for the client to read."""
        super().pause_writing()
        self._stall_timer = self.loop.call_later(self.stall_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Goes on, as the client has read."""
        self._stall_timer = _cancelled(self._stall_timer)
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets the timers."""
        self._head_timer = _cancelled(self._head_timer)
        self._stall_timer = _cancelled(self._stall_timer)
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.header_seconds, self.transport.abort)


def _cancelled(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
