"""Measured: a server under load, as its clients see it. Requests are streamed; every event's arrival is noted.

With ``clients`` each of them sends its next request when the last one is answered (a closed loop); without, a request
is sent at its time ``at``, whatever the server does (an open loop).
"""

import asyncio
import hashlib
import itertools
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tools.benching.jobs._measure import serve

_PATH: Final = "/v1/completions"
_HOST: Final = "127.0.0.1"
_DATA: Final = b"data: "
_DONE: Final = b"[DONE]"
_LONGEST_LINE: Final = 1 << 20


@dataclass(slots=True)
class Answer:
    """Answer to one request, by the client's clock.

    Attributes:
        began: when it was sent, in seconds.
        arrivals: when each event came.
        events: their JSON.
    """

    began: float
    arrivals: list[float] = field(default_factory=list[float])
    events: list[bytes] = field(default_factory=list[bytes])

    def as_json(self) -> dict[str, Any]:
        """Returns the figures: seconds to the first token, between tokens, and in all; tokens; a hash of the text."""
        parsed = [json.loads(event) for event in self.events]
        texts = ["".join(choice.get("text") or "" for choice in event.get("choices", ())) for event in parsed]
        times = [arrival for arrival, text in zip(self.arrivals, texts, strict=True) if text]
        usage = next((event["usage"] for event in reversed(parsed) if event.get("usage")), {})
        if not times:
            raise RuntimeError(f"an answer without text: {self.events[:2]!r}")
        return {
            "first_seconds": times[0] - self.began,
            "gap_seconds": [after - before for before, after in itertools.pairwise(times)],
            "seconds": self.arrivals[-1] - self.began,
            "tokens": usage.get("completion_tokens", len(times)),
            "text": hashlib.sha256("".join(texts).encode()).hexdigest(),
        }


def run(arguments: dict[str, Any]) -> dict[str, Any]:
    """Sends requests and gives what came of each, in their order.

    Args:
        arguments: ``port``, ``requests`` (a file with a JSON list; each has ``body`` and, in an open loop, ``at`` in
            seconds), ``clients`` (or None).
    """
    requests = json.loads(Path(arguments["requests"]).read_text())
    began = time.perf_counter()
    answers = asyncio.run(_all(arguments["port"], requests, arguments["clients"]))
    ended = max(answer.arrivals[-1] for answer in answers)
    return {"seconds": ended - began, "answers": [answer.as_json() for answer in answers]}


async def _all(port: int, requests: Sequence[Mapping[str, Any]], clients: int | None) -> list[Answer]:
    answers: dict[int, Answer] = {}
    waiting = iter(enumerate(requests))
    began = time.perf_counter()

    async def client() -> None:
        for index, request in waiting:
            answers[index] = await _answer(port, request["body"])

    async def arrival(index: int, request: Mapping[str, Any]) -> None:
        await asyncio.sleep(request["at"] - (time.perf_counter() - began))
        answers[index] = await _answer(port, request["body"])

    if clients is None:
        await asyncio.gather(*(arrival(index, request) for index, request in waiting))
    else:
        await asyncio.gather(*(client() for _ in range(clients)))
    return [answers[index] for index in range(len(requests))]


async def _answer(port: int, body: Mapping[str, Any]) -> Answer:
    content = json.dumps(body).encode()
    head = (
        f"POST {_PATH} HTTP/1.1\r\nHost: {_HOST}:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    )
    answer = Answer(time.perf_counter())
    reader, writer = await asyncio.open_connection(_HOST, port, limit=_LONGEST_LINE)
    try:
        writer.write(head.encode() + content)
        async for line in _lines(reader):
            if line.startswith(_DATA) and line != _DATA + _DONE:
                answer.arrivals.append(time.perf_counter())
                answer.events.append(line[len(_DATA) :])
    finally:
        writer.close()
    return answer


async def _lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yields the lines of a response's body as they come."""
    status = await reader.readline()
    headers: list[bytes] = []
    while (line := (await reader.readline()).strip().lower()) != b"":
        headers.append(line)
    if b" 200 " not in status:
        raise RuntimeError(f"{status.decode().strip()}: {(await reader.read(1000)).decode(errors='replace')}")
    rest = b""
    async for piece in _chunks(reader) if b"transfer-encoding: chunked" in headers else _pieces(reader):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line.rstrip(b"\r")


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int((await reader.readline()).partition(b";")[0], 16):
        yield await reader.readexactly(size)
        await reader.readline()


async def _pieces(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while piece := await reader.read(1 << 16):
        yield piece


if __name__ == "__main__":
    serve(run)
