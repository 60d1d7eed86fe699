"""Processes that are killed, and folders that cannot be written: everything is usable afterwards."""

import contextlib
import http.client
import json
import multiprocessing
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

import pytest

import tapeline
from run_iree import ModuleCache
from tapeline.bundle import MARK, Bundle
from tapeline.command import main
from tests.integrity import _jobs

_LONG: Final = bool(os.environ.get("TAPELINE_LONG"))
_KILLS: Final = 100 if _LONG else 4
_SECONDS: Final = 300
_PROMPT: Final = "It was the best of times,"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tapeline"


@pytest.fixture
def begin() -> Iterator[Callable[..., BaseProcess]]:
    """Begins jobs in processes without threads, which import nothing again."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tapeline.command", "tapeline.exporting", "tests.integrity._jobs"])
    begun: list[BaseProcess] = []

    def start(job: Callable[..., None], *arguments: Any) -> BaseProcess:
        begun.append(context.Process(target=job, args=arguments, daemon=True))
        begun[-1].start()
        return begun[-1]

    yield start
    for process in begun:
        process.kill()
        process.join()


def _wait_for(path: Path, process: BaseProcess) -> None:
    """Waits until a file is there, so that what is killed has begun its work."""
    until = time.monotonic() + _SECONDS
    while not path.exists():
        assert process.is_alive()
        assert time.monotonic() < until, f"{path} does not appear"
        time.sleep(0.01)


def test_exports_that_are_killed_leave_a_whole_bundle(begin: Callable[..., BaseProcess], tmp_path: Path) -> None:
    """The bundle is the former one or the new one, and the next export succeeds."""
    output, draw = tmp_path / "demo", random.Random(44)
    for number in range(_KILLS):
        process = begin(_jobs.export_for_ever, output)
        _wait_for(output / MARK, process)
        time.sleep(draw.random() * 0.5)
        process.kill()
        process.join()
        assert Bundle(output).checks.damaged() is None, f"kill {number}"
    tapeline.export("demo", output, **_jobs.SIZES, overwrite=True)
    assert [path.name for path in tmp_path.glob("*demo*")] == ["demo"]
    assert Bundle(output).checks.damaged() is None


def test_writers_of_the_caches_that_are_killed_leave_whole_entries(
    begin: Callable[..., BaseProcess], tmp_path: Path
) -> None:
    """While others go on, with evictions all the time."""
    draw, folder, output = random.Random(45), tmp_path / "shared", tmp_path / "output"
    folder.mkdir()
    modules = ModuleCache(folder / "tapeline" / "modules", 220_000)
    other = begin(_jobs.cache_for_ever, folder)
    for _ in range(_KILLS):
        process = begin(_jobs.cache_for_ever, folder)
        _wait_for(folder / f"module-{process.pid}.copy", process)
        time.sleep(draw.random() * 0.2)
        process.kill()
        process.join()
        assert other.is_alive()
        for key in range(7):
            facts = modules.fetch(f"{key}", output)
            assert facts in (None, {"number": key})
            assert facts is None or output.stat().st_size == 50_000
    modules.store("7", output, {})
    assert modules.fetch("7", output) == {}


@pytest.mark.skipif(not _LONG, reason="kills of servers, some seconds each, run with TAPELINE_LONG=1")
def test_servers_that_are_killed_leave_whole_caches_and_start_again(
    begin: Callable[..., BaseProcess], cache: Path, tmp_path: Path
) -> None:
    """Killed while they export, while they start and while they answer."""
    draw, address = random.Random(46), tmp_path / "address"
    for number in range(_KILLS):
        address.unlink(missing_ok=True)
        process = begin(_jobs.serve_for_ever, cache.parent, address)
        if number % 3:
            place = _address(address, process)
            if number % 3 == 2:
                assert _ask(place)[0] == 200  # from here on it answers
            asking = threading.Thread(target=_ask_until_killed, args=(place,))
            asking.start()
            time.sleep(draw.random() * 0.2)
        else:
            asking = None
            _wait_for(address, process)
            time.sleep(draw.random() * 2)
        process.kill()
        process.join()
        if asking is not None:
            asking.join()
    address.unlink()
    process = begin(_jobs.serve_for_ever, cache.parent, address)
    status, body = _ask(_address(address, process))
    assert status == 200, body
    bundles = [Bundle(mark.parent) for mark in cache.rglob(MARK)]
    assert bundles
    assert [bundle.path for bundle in bundles if bundle.checks.damaged() is not None] == []
    with tapeline.load(bundles[0]) as model:
        assert json.loads(body)["choices"][0]["text"] == model.generate(_PROMPT, max_new_tokens=8).text


def _address(path: Path, process: BaseProcess) -> str:
    """Returns the address of a server, once it listens."""
    _wait_for(path, process)
    until = time.monotonic() + _SECONDS
    while not path.read_text().endswith("\n"):
        assert process.is_alive()
        assert time.monotonic() < until, "the server does not listen"
        time.sleep(0.01)
    return path.read_text().split()[-1].removeprefix("http://").rstrip("/")


def _ask(address: str) -> tuple[int, bytes]:
    """Returns status and body of an answer; a server that loads its model is asked again."""
    body = json.dumps({"prompt": _PROMPT, "max_tokens": 8, "temperature": 0})
    until = time.monotonic() + _SECONDS
    while True:
        connection = http.client.HTTPConnection(address, timeout=_SECONDS)
        with contextlib.closing(connection):
            connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            status, answer = response.status, response.read()
        if status != 503 or time.monotonic() > until:
            return status, answer
        time.sleep(0.05)


def _ask_until_killed(address: str) -> None:
    with contextlib.suppress(OSError, http.client.HTTPException):
        while True:
            _ask(address)


def test_without_a_home_that_can_be_written_bundles_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Modules of this process are known; what must be kept says what to set."""
    monkeypatch.delenv("XDG_CACHE_HOME")
    output = tmp_path / "demo"
    export = ["export", "--num_layers=1", "--max_sequence=32", "--verify=none"]
    for home, more in {
        "/dev/null/home": [f"--output={output}"],
        "/proc/home": ["--output=other", "--target=none"],
    }.items():
        monkeypatch.setenv("HOME", home)
        monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
        assert main([*export, *more]) == 0
        assert main(["generate", f"--bundle={output}", f"--prompt={_PROMPT}", "--max_new_tokens=2"]) == 0
        assert main(["cache"]) == 0
        capsys.readouterr()
        assert main(["generate", "--model=demo", f"--prompt={_PROMPT}", "--max_new_tokens=2"]) == 2
        assert "cannot be written" in capsys.readouterr().err


def test_processes_that_fill_one_cache_have_their_bundles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound of one byte evicts every bundle that no process has."""
    monkeypatch.setenv("TAPELINE_BUNDLE_CACHE", "1B")
    first = tapeline.cached_export("demo", **_jobs.SIZES)
    second = tapeline.cached_export("demo", **_jobs.sizes(40))
    assert first.checks.damaged() is None
    path = first.path
    del first
    third = tapeline.cached_export("demo", **_jobs.sizes(48))
    assert not path.exists()
    assert second.checks.damaged() is None
    assert third.checks.damaged() is None
