"""Tests of items that threads hand over."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tapeline.server._mailbox import Mailbox


def test_items_of_several_threads_come_once_and_in_the_order_of_each() -> None:
    threads, items = 3, 500

    async def receive() -> list[tuple[int, int]]:
        mailbox = Mailbox[tuple[int, int]]()

        def post(thread: int) -> None:
            for item in range(items):
                mailbox.put((thread, item))

        posting = [threading.Thread(target=post, args=(thread,)) for thread in range(threads)]
        for thread in posting:
            thread.start()
        received = [await mailbox.get() for _ in range(threads * items)]
        for thread in posting:
            thread.join()
        return received

    received = asyncio.run(asyncio.wait_for(receive(), 60))
    for thread in range(threads):
        assert [item for sender, item in received if sender == thread] == list(range(items))


def test_items_that_come_before_the_loop_looks_wake_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def wakes() -> list[int]:
        loop, wakes = asyncio.get_running_loop(), list[int]()
        wake = loop.call_soon_threadsafe

        def counted(callback: Callable[..., Any], *arguments: Any) -> asyncio.Handle:
            wakes.append(1)
            return wake(callback, *arguments)

        mailbox = Mailbox[int]()
        monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
        for item in range(5):
            mailbox.put(item)
        assert [await mailbox.get() for _ in range(5)] == list(range(5))
        await asyncio.sleep(0)
        mailbox.put(5)
        assert await mailbox.get() == 5
        return wakes

    assert len(asyncio.run(wakes())) == 2


def test_a_cancelled_wait_loses_no_item() -> None:
    async def receive() -> int:
        mailbox = Mailbox[int]()
        waiting = asyncio.ensure_future(mailbox.get())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        mailbox.put(7)
        return await mailbox.get()

    assert asyncio.run(asyncio.wait_for(receive(), 60)) == 7


def test_a_closed_loop_takes_items_and_does_nothing() -> None:
    async def make() -> Mailbox[int]:
        return Mailbox[int]()

    mailbox = asyncio.run(make())
    mailbox.put(1)
    mailbox.put(2)
