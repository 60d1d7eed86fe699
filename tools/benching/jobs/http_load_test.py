"""The client's figures, of a server whose events are made up."""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tools.benching.jobs.http_load import run

_EVENTS = ["a", "", "b", "c"]


def _body() -> list[bytes]:
    choices = [{"choices": [{"text": text}]} for text in _EVENTS]
    usage = {"choices": [], "usage": {"completion_tokens": 7}}
    return [f"data: {json.dumps(event)}\n\n".encode() for event in (*choices, usage)] + [b"data: [DONE]\n\n"]


class _Server:
    """Answers every request; counts those that are answered at once."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []
        self.most = 0
        self._running = 0
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(asyncio.start_server(self._answer, "127.0.0.1", 0))
        self.port = self._server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._server.close()
        self._loop.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._running += 1
        self.most = max(self.most, self._running)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        size = int(head.partition("content-length: ")[2].split()[0])
        request = json.loads(await reader.readexactly(size))
        self.bodies.append(request)
        if request.get("refuse"):
            writer.write(b"HTTP/1.1 429 Too Many\r\nContent-Type: application/json\r\n\r\nlater")
        elif request.get("plain"):
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + b"".join(_body()))
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            whole = b"".join(_body())
            for start in range(0, len(whole), 33):  # chunks that are no lines
                piece = whole[start : start + 33]
                writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                await writer.drain()
                await asyncio.sleep(0.001)
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        self._running -= 1
        writer.close()


@pytest.fixture
def server() -> Iterator[_Server]:
    made = _Server()
    yield made
    made.close()


def _run(server: _Server, tmp_path: Path, requests: list[Any], clients: int | None) -> dict[str, Any]:
    file = tmp_path / "requests.json"
    file.write_text(json.dumps(requests))
    return run({"port": server.port, "requests": str(file), "clients": clients})


def test_closed_loops(server: _Server, tmp_path: Path) -> None:
    requests = [{"body": {"number": number, "plain": number == 2}} for number in range(5)]
    result = _run(server, tmp_path, requests, 2)
    assert sorted(body["number"] for body in server.bodies) == [0, 1, 2, 3, 4]
    assert server.most == 2
    assert [answer["tokens"] for answer in result["answers"]] == [7] * 5
    assert {len(answer["gap_seconds"]) for answer in result["answers"]} == {2}  # of three events with text
    assert len({answer["text"] for answer in result["answers"]}) == 1
    for answer in result["answers"]:
        assert 0 < answer["first_seconds"] <= answer["seconds"] <= result["seconds"]


def test_open_loops(server: _Server, tmp_path: Path) -> None:
    requests = [{"body": {"number": number}, "at": at} for number, at in enumerate((0.0, 0.02, 0.021))]
    result = _run(server, tmp_path, requests, None)
    assert result["seconds"] >= 0.021
    assert len(result["answers"]) == 3


def test_refusals_are_an_error(server: _Server, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"HTTP/1\.1 429 Too Many: later"):
        _run(server, tmp_path, [{"body": {"refuse": True}}], 1)
