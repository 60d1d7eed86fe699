"""Clients that go away: work for them ends."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from starlette.types import Receive

from lang_core import TapelineError

T = TypeVar("T")


class ClientGoneError(TapelineError):
    """The client has closed the connection; nobody reads an answer."""


async def unless_gone(receive: Receive, work: Awaitable[T]) -> T:
    """Returns the result of the work, or cancels it if the client disconnects.

    Args:
        receive: of the request, after its body has been read.
        work: work to run.

    Raises:
        ClientGoneError: the client has gone.
    """
    task, watcher = asyncio.ensure_future(work), asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGoneError("the client has closed the connection")
        return task.result()
    finally:
        for one in (task, watcher):
            one.cancel()
        await asyncio.gather(task, watcher, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
