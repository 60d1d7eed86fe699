"""Items that other threads hand to a task of an event loop."""

import asyncio
import contextlib
from collections import deque
from typing import Final, Generic, TypeVar

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Items for one task of the running event loop, in the order in which they came.

    The loop is woken once for all items that come before it has looked: a wake is two calls of the system and a turn
    of the loop, and costs more than an item.
    """

    def __init__(self) -> None:
        self._loop: Final = asyncio.get_running_loop()
        self._items: Final[deque[T]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._told = False  # True while a wake is on its way: it sees every item that was put before it runs

    def put(self, item: T) -> None:
        """Adds an item. Any thread may call it; nothing happens if the loop has been closed."""
        self._items.append(item)
        if not self._told:
            self._told = True
            with contextlib.suppress(RuntimeError):  # the loop has been closed, and nobody waits
                self._loop.call_soon_threadsafe(self._wake)

    async def get(self) -> T:
        """Returns the next item, as soon as there is one. One task calls it."""
        while not self._items:
            self._waiter = self._loop.create_future()
            await self._waiter
        return self._items.popleft()

    def _wake(self) -> None:
        self._told = False
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
