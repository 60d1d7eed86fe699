"""``tapeline serve`` under load for a long time, killed and started again, and on a disk that is full. Run by hand.

TAPELINE_SOAK_SECONDS says how long the load lasts; CONTRIBUTING.md has the command.
"""

import concurrent.futures
import contextlib
import itertools
import json
import os
import random
import re
import resource
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import pytest

from tests.product._bundles import export
from tests.product._serving import ServerProcess, serving, wait_until

_SECONDS: Final = float(os.environ.get("TAPELINE_SOAK_SECONDS", "20"))
_CLIENTS: Final = 6
_WARM_SHARE: Final = 0.25
_GROWTH: Final = 1.05
_TEXT: Final = "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of "
_ROUTE: Final = "/v1/completions"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export("demo", tmp_path_factory.mktemp("demo") / "demo", slots=4, max_sequence=256)


def _asks() -> list[dict[str, Any]]:
    """Requests whose answers do not change: greedy ones and sampled ones with a seed, some with a common beginning."""
    draw = random.Random(5)
    starts = [_TEXT[: draw.randrange(5, len(_TEXT))] for _ in range(12)]
    settings = ({"temperature": 0}, {"temperature": 0.9, "seed": 3}, {"temperature": 0.7, "top_p": 0.9, "seed": 4})
    common = {"model": "demo", "max_tokens": 24}
    return [{**common, "prompt": start, **more} for start, more in itertools.product(starts, settings)]


def _text(server: ServerProcess, ask: dict[str, Any]) -> str:
    status, answer = server.request(_ROUTE, ask)
    assert status == 200, answer
    return answer["choices"][0]["text"]


def _abort(server: ServerProcess, ask: dict[str, Any], draw: random.Random) -> None:
    body = json.dumps({**ask, "stream": True, "max_tokens": 200, "ignore_eos": True}).encode()
    head = f"POST {_ROUTE} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    head += f"content-length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall((head.encode() + body)[: draw.choice((len(head), 10**6))])
        connection.settimeout(draw.choice((0.001, 1)))
        with contextlib.suppress(TimeoutError):
            connection.recv(300)


def _client(server: ServerProcess, number: int, expected: dict[str, str], end: float) -> int:
    """Sends requests until the time is over; returns the number of answers that were compared."""
    draw, compared, asks = random.Random(number), 0, _asks()
    while time.monotonic() < end:
        ask, kind = draw.choice(asks), draw.random()
        if kind < 0.15:
            _abort(server, ask, draw)
        elif kind < 0.25:
            wrong = draw.choice(({"n": 0}, {"prompt": "a" * 5000}, {"model": "none"}, {"stop": 5}))
            assert server.request(_ROUTE, {**ask, **wrong})[0] in (400, 404)
        else:
            assert _text(server, ask) == expected[json.dumps(ask)]
            compared += 1
    return compared


def _resident_kib(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    match = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert match
    return int(match[1])


@pytest.fixture(scope="module")
def paged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("paged") / "demo"
    return export("demo", folder, slots=4, max_sequence=256, pages=40, page_tokens=16, verify_tokens=4)


@pytest.mark.parametrize(("kind", "flags"), [("demo", ()), ("paged", ("--speculate=prompt_lookup", "--draft_rows=4"))])
def test_load_neither_leaks_nor_changes_an_answer(
    tmp_path: Path, kind: str, flags: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    bundle = request.getfixturevalue(kind)
    with serving(tmp_path, f"--bundle={bundle}", "--prefix_cache_memory=4MiB", *flags) as server:
        expected = {json.dumps(ask): _text(server, ask) for ask in _asks()}
        began, resident = time.monotonic(), []
        with concurrent.futures.ThreadPoolExecutor(_CLIENTS) as pool:
            clients = [pool.submit(_client, server, number, expected, began + _SECONDS) for number in range(_CLIENTS)]
            while not all(client.done() for client in clients):
                time.sleep(_SECONDS / 100)
                if time.monotonic() - began > _WARM_SHARE * _SECONDS:
                    resident.append(_resident_kib(server.process.pid))
        compared = sum(client.result() for client in clients)
        wait_until(lambda: server.figure("num_requests_running") + server.figure("num_requests_waiting") == 0)
        fifth = len(resident) // 5
        first, last = statistics.median(resident[:fifth]), statistics.median(resident[-fifth:])
        print(f"{compared} answers compared in {_SECONDS:.0f} s; resident {first:.0f} KiB, then {last:.0f}")
        assert compared > _SECONDS / 4
        assert last <= _GROWTH * first
        assert server.end() == 0


def test_a_killed_server_starts_again(tmp_path: Path, demo: Path) -> None:
    ask = _asks()[0]
    with serving(tmp_path / "first", f"--bundle={demo}") as server:
        expected = _text(server, ask)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            long = {**ask, "max_tokens": 200, "ignore_eos": True}
            running = [pool.submit(server.request, _ROUTE, long) for _ in range(4)]
            wait_until(lambda: server.figure("num_requests_running") > 0)
            server.process.kill()
            assert all(future.exception() is not None for future in running)
    with serving(tmp_path / "second", f"--bundle={demo}") as server:
        assert _text(server, ask) == expected


def test_an_export_that_was_killed_is_made_again(tmp_path: Path) -> None:
    cache = tmp_path / "server" / "cache"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "XDG_CACHE_HOME": str(cache)}
    command = [sys.executable, "-m", "tapeline", "serve", "--port=0", "--model=demo", "--verify=none"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: any(cache.rglob("module.mlir*")), 60)
        process.kill()
    with serving(tmp_path / "server", "--model=demo", "--verify=none") as server:
        assert _text(server, _asks()[0])


def test_a_disk_that_is_full_is_said(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "tapeline", "serve", "--port=0", "--model=demo", "--verify=none"]
    done = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000)),
    )
    assert done.returncode == 2, done.stderr
    assert re.search("disk is full|File too large", done.stderr)  # of the bundle, or of the demo's own files
    assert not list(tmp_path.rglob("kernel_config.json"))
