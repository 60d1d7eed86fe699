"""``tapeline serve`` while it exports its model: its progress, and its end."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.product._serving import ServerProcess, started, wait_until


def _compilers(cache: Path) -> list[int]:
    """Returns the compilers that export into a cache."""
    return [int(process.name) for process in Path("/proc").glob("[0-9]*") if _compiles(process, cache)]


def _compiles(process: Path, cache: Path) -> bool:
    try:
        command, environment = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
    except OSError:  # it has ended
        return False
    return command.partition(b"\0")[0].endswith(b"iree-compile") and f"XDG_CACHE_HOME={cache}\0".encode() in environment


def _begin_compiling(server: ServerProcess, cache: Path) -> None:
    wait_until(lambda: _compilers(cache) or server.process.poll() is not None, 60)
    assert server.process.poll() is None, server.log.read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_exports_ends_without_the_compiler(tmp_path: Path, number: signal.Signals) -> None:
    cache = tmp_path / "cache"
    with started(tmp_path, "--model=demo", "--verify=none") as server:
        _begin_compiling(server, cache)
        server.process.send_signal(number)
        assert server.process.wait(60) == (130 if number == signal.SIGINT else 0)
        assert not _compilers(cache)
    assert not list((cache / "tapeline" / "bundles").iterdir())
    lines = server.log.read_text().splitlines()
    if number == signal.SIGINT:
        assert lines.pop() == "error: interrupted"
    events = [json.loads(line)["event"] for line in lines]
    assert [event for event in events if event != "export"] == ["loading", "draining", "ended"]


def test_a_server_that_exports_tells_the_progress(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with started(tmp_path, "--model=demo", "--verify=none") as server:
        _begin_compiling(server, cache)
        for compiler in _compilers(cache):
            os.kill(compiler, signal.SIGSTOP)  # the export stays at this step
        wait_until(lambda: "compiling" in server.request("/health")[1]["step"])
        assert server.request("/live") == (200, {"status": "live"})
        status, health = server.request("/health")
        assert (status, health["status"], health["state"]) == (503, "loading", "loading")
        assert health["seconds"] > 0
        assert [(model["id"], model["state"]) for model in health["models"]] == [("demo", "loading")]
        status, refused = server.request("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}]})
        assert status == 503
        assert "(demo: compiling module.mlir for llvm-cpu" in refused["error"]["message"]
        assert server.request("/")[0] == 200
        assert server.end() == 0


def test_an_export_ends_with_a_server_that_is_killed(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with started(tmp_path, "--model=demo", "--verify=none") as server:
        _begin_compiling(server, cache)
        server.process.kill()
        wait_until(lambda: not _compilers(cache))
    assert not list(cache.rglob("kernel_config.json"))
