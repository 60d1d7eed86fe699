"""``tapeline serve`` under a mixed load: every kind of request, cancelled and malformed ones, reloads. Run by hand.

TAPELINE_LOAD_SECONDS says how long the load lasts, TAPELINE_LOAD_FIGURES names a file for figures of memory, and
TAPELINE_LOAD_PAUSE has each client wait so many seconds between requests. CONTRIBUTING.md has the command.
"""

import collections
import concurrent.futures
import json
import os
import random
import signal
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from tests.product._mixed_load_testing import Ask, cancel, drawn, every_kind, export_every_kind, malformed, memory
from tests.product._serving import ServerProcess, serving, wait_until

_SECONDS: Final = float(os.environ.get("TAPELINE_LOAD_SECONDS", "15"))
_PAUSE: Final = float(os.environ.get("TAPELINE_LOAD_PAUSE", "0"))
_FIGURES: Final = os.environ.get("TAPELINE_LOAD_FIGURES")
_CLIENTS: Final = 6
_RELOAD_SECONDS: Final = max(5.0, min(120.0, _SECONDS / 20))
_WARM_SECONDS: Final = min(600.0, _SECONDS / 2)
_SAMPLE_SECONDS: Final = max(0.5, min(10.0, _SECONDS / 100))
# The promise is 1 % after ten minutes. A short run is still warming up, and only shows gross leaks.
_GROWTH: Final = 1.01 if _SECONDS >= 3600 else 1.3
_POOL: Final = 8  # requests of each kind that are compared with the answer they had alone


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return export_every_kind(tmp_path_factory.mktemp("load"))


@dataclass(slots=True)
class _Tally:
    """Counts of a client, which others may read.

    Attributes:
        sent: requests by kind.
        compared: answers that were compared, by kind.
        faults: answers that are wrong.
    """

    sent: collections.Counter[str] = field(default_factory=collections.Counter[str])
    compared: collections.Counter[str] = field(default_factory=collections.Counter[str])
    faults: list[str] = field(default_factory=list[str])


def _joined(tallies: list[_Tally]) -> _Tally:
    joined = _Tally()
    for one in tallies:
        joined.sent.update(one.sent.copy())
        joined.compared.update(one.compared.copy())
        joined.faults.extend(one.faults)
    return joined


def _client(server: ServerProcess, number: int, tally: _Tally, pool: list[tuple[Ask, Any]], end: float) -> None:
    """Sends requests until the time is over. A tenth of them and more is compared with what is known."""
    draw = random.Random(number)
    while time.monotonic() < end and len(tally.faults) < 9:
        kind = draw.random()
        if kind < 0.1:
            cancel(server, draw)
            tally.sent["cancel"] += 1
        elif kind < 0.2:
            _check(tally, malformed(draw), None, server)
        elif kind < 0.4:
            _check(tally, *draw.choice(pool), server)
        else:
            ask = drawn(draw)
            answer = _check(tally, ask, None, server)
            if draw.random() < 0.1:
                _check(tally, ask, answer, server)
        if tally.sent.total() % 50 == 0:
            server.request("/metrics")
        time.sleep(_PAUSE)


def _check(tally: _Tally, ask: Ask, expected: Any, server: ServerProcess) -> Any:
    """Sends a request and notes what is wrong with its answer."""
    status, answer = ask.send(server)
    tally.sent[ask.kind] += 1
    wanted = (400, 404, 413) if ask.kind == "malformed" else (200,)
    if status not in wanted:
        tally.faults.append(f"{ask.kind}: {status} {str(answer)[:300]} for {str(ask.body)[:500]}")
    elif expected is not None:
        tally.compared[ask.kind] += 1
        if answer != expected:
            tally.faults.append(f"{ask.kind}: {str(answer)[:500]} expected {str(expected)[:500]}")
    return answer


def _growth(samples: list[dict[str, float]], name: str) -> float:
    """Returns how the median of a figure in the last fifth of the samples compares with that in the first."""
    fifth = max(1, len(samples) // 5)
    first, last = (statistics.median(one[name] for one in part) for part in (samples[:fifth], samples[-fifth:]))
    return last / first


def _watch(server: ServerProcess, tallies: list[_Tally], end: float) -> list[dict[str, float]]:
    """Reloads the models now and then, and returns figures of memory after the first minutes."""
    began, reload, samples = time.monotonic(), time.monotonic() + _RELOAD_SECONDS, []
    while time.monotonic() < end:
        time.sleep(_SAMPLE_SECONDS)
        seconds = time.monotonic() - began
        sample = {"seconds": round(seconds, 1), **memory(server.process.pid)}
        if _FIGURES:
            with Path(_FIGURES).open("a") as lines:
                tally = _joined(tallies)
                counts = {"sent": tally.sent.total(), "compared": tally.compared.total(), "faults": tally.faults}
                lines.write(json.dumps({**sample, **counts}) + "\n")
        if seconds > _WARM_SECONDS:
            samples.append(sample)
        if time.monotonic() > reload:
            server.process.send_signal(signal.SIGHUP)
            reload = time.monotonic() + _RELOAD_SECONDS
    return samples


def test_mixed_load_neither_leaks_nor_changes_an_answer(tmp_path: Path, bundles: list[Path]) -> None:
    flags = [f"--bundle={bundle}" for bundle in bundles]
    with serving(
        tmp_path, *flags, "--prefix_cache_memory=4MiB", "--max_images=2", "--max_image_bytes=100000"
    ) as server:
        draw = random.Random(7)
        asks = [ask for _ in range(_POOL) for ask in every_kind(draw)]
        pool = [(ask, ask.send(server)) for ask in asks]
        assert {status for _, (status, _) in pool} == {200}, [answer for _, answer in pool if answer[0] != 200]
        known = [(ask, answer) for ask, (_, answer) in pool]
        end, tallies = time.monotonic() + _SECONDS, [_Tally() for _ in range(_CLIENTS)]
        with concurrent.futures.ThreadPoolExecutor(_CLIENTS) as clients:
            running = [clients.submit(_client, server, i, tally, known, end) for i, tally in enumerate(tallies)]
            samples = _watch(server, tallies, end)
            for client in running:
                client.result()
        tally = _joined(tallies)
        wait_until(lambda: server.figure("num_requests_running") + server.figure("num_requests_waiting") == 0)
        growths = {name: round(_growth(samples, name), 4) for name in samples[0] if name != "seconds"}
        events = collections.Counter(line["event"] for line in server.logged())
        print(f"{_SECONDS:.0f} s; sent {dict(tally.sent)}; compared {dict(tally.compared)}; growth {growths}; {events}")
        assert not tally.faults
        assert events["reload failed"] == events["fault"] == 0
        assert events["retired"] >= len(bundles)
        assert tally.compared.total() >= sum(tally.sent.values()) / 10
        assert set(tally.compared) == {ask.kind for ask in asks}
        for name in ("server_rss", "server_anonymous", "all_anonymous", "server_files", "server_threads"):
            assert growths[name] <= _GROWTH, (name, growths)
        assert server.figure("engine_failures_total") == 0
        assert server.end() == 0
