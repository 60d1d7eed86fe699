"""Clients that send too much, too slowly, or go away; queues that are full, answers that take too long."""

import contextlib
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from tapeline.server._scripted_server_testing import HELLO, chat, script_tokens, scripted_server
from tapeline.server._server_testing import RunningServer

__all__ = ["script_tokens", "scripted_server"]  # fixtures


def test_bodies_are_limited(server: RunningServer) -> None:
    path = "/v1/completions"
    assert server.request(path, b"{").error["code"] == "invalid_json"
    assert server.request(path, b"x" * 100_001).status == 413
    assert server.request(path, b"{}", headers={"content-type": "text/plain"}).status == 415
    deep = json.dumps({"prompt": "a", "metadata": 1}).replace("1", "[" * 70 + "]" * 70).encode()
    assert "nests deeper than 64" in server.request(path, deep).error["message"]
    with server.socket() as connection:  # a body without its length, too large
        head = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json"
        head += b"\r\ntransfer-encoding: chunked"
        connection.sendall(head + b"\r\n\r\n" + (b"4000\r\n" + b"x" * 0x4000 + b"\r\n") * 7)
        assert connection.recv(1000).startswith(b"HTTP/1.1 413")


def test_slow_heads_and_bodies_are_cut_off(server: RunningServer) -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    with server.socket() as silent, server.socket() as partial, server.socket() as half:
        partial.sendall(head)
        half.sendall(head + b"content-length: 100\r\n\r\n{")
        assert half.recv(1000).startswith(b"HTTP/1.1 408")
        for connection in (silent, partial):
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(1000) == b""


def idle(server: RunningServer) -> bool:
    figures = server.service.models.figures()["slow"]
    return figures.running == figures.waiting == 0


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)


def post(body: Any, path: bytes = b"/v1/chat/completions") -> bytes:
    sent = json.dumps(body).encode()
    head = b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % (path, len(sent)) + sent


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_frees_its_slot(server: RunningServer, stream: bool) -> None:
    before = server.service.models.figures()["slow"].ended.get("cancelled", 0)
    with server.socket() as connection:
        connection.sendall(post({"model": "slow", "messages": HELLO, "max_tokens": 100, "stream": stream}))
        wait_until(lambda: server.service.models.figures()["slow"].running > 0)
    wait_until(lambda: idle(server))
    assert server.service.models.figures()["slow"].ended["cancelled"] == before + 1


def test_a_full_queue_is_429(server: RunningServer) -> None:
    body = post({"model": "slow", "messages": HELLO, "max_tokens": 100})
    connections = [server.socket() for _ in range(4)]  # two slots, two that may wait
    try:
        for connection in connections[:2]:
            connection.sendall(body)
        wait_until(lambda: server.service.models.figures()["slow"].running == 2)
        for connection in connections[2:]:
            connection.sendall(body)
        wait_until(lambda: server.service.models.figures()["slow"].waiting == 2)
        answered = chat(server, model="slow")
        assert answered.status == 429
        assert int(answered.headers["retry-after"]) >= 1
        assert answered.error["type"] == "rate_limit_error"
    finally:
        for connection in connections:
            connection.close()
    wait_until(lambda: idle(server))


def test_an_answer_that_takes_too_long_is_504(server: RunningServer) -> None:
    answered = chat(server, model="slow", timeout=0.1)
    assert answered.status == 504
    assert "the answer took too long" in answered.error["message"]
    events = chat(server, model="slow", timeout=0.1, stream=True).events
    assert events[-1] == "[DONE]"
    assert events[-2]["error"]["code"] == "deadline_exceeded"
