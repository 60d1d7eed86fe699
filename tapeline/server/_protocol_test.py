"""Connections of the server."""

import asyncio
import socket
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from tapeline.server._protocol import GuardedProtocol


async def _app(scope: Any, receive: Any, send: Any) -> None:
    del scope, receive, send


async def _check_accepted(listener: socket.socket) -> None:
    """Connects to a listener as ``serve`` makes it, and looks at the server's side of the connection."""
    config = uvicorn.Config(_app, http=GuardedProtocol, ws="none", lifespan="off", log_config=None)
    config.load()
    made = list[GuardedProtocol]()

    def make() -> GuardedProtocol:
        made.append(GuardedProtocol(config=config, server_state=ServerState(), app_state={}))
        return made[0]

    loop = asyncio.get_running_loop()
    async with await loop.create_server(make, sock=listener):
        _, writer = await asyncio.open_connection(*listener.getsockname()[:2])
        while not made or made[0].transport is None:
            await asyncio.sleep(0)
        connection = made[0].transport.get_extra_info("socket")
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer.close()
        made[0].transport.abort()


def test_parts_of_a_response_are_sent_at_once() -> None:
    asyncio.run(_check_accepted(socket.create_server(("127.0.0.1", 0))))
