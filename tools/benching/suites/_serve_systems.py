"""Servers that take turns in the suite ``serve``, each in a process of its own with the same model."""

import contextlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tools.benching.suites._plan import Plan
from tools.benching.suites._run import BenchError, Runner, environment, failure
from tools.benching.suites._serve_rows import ServeGroup

_TARGET: Final = "llvm-cpu"
_HOST: Final = "127.0.0.1"
_READY_S: Final = 300.0
_PAUSE_S: Final = 0.1
_END_S: Final = 60.0


def model_file(runner: Runner, group: ServeGroup, checkpoint: Path, folder: Path) -> Path:
    """Returns the GGUF file of a group, written where it is made of random weights."""
    if group.file is not None:
        return group.file
    runner.say(f"writing a GGUF file of type {group.bits} ...")
    file = folder / f"{group.bits}.gguf"
    places = {"checkpoint": str(checkpoint), "output": str(file)}
    runner.job("tools.benching.jobs.gguf_file", type=group.bits, words=True, **places)
    return file


def export(runner: Runner, plan: Plan, file: Path, output: Path, activations: str) -> Path:
    """Exports a GGUF file as users do, with slots."""
    runner.say(f"exporting {output.name} ...")
    places = [f"--model={file}", f"--output={output}", f"--target={_TARGET}", "--verify=none"]
    sizes = [f"--max_sequence={plan.serve.capacity}", f"--slots={plan.serve.slots}"]
    runner.command([sys.executable, "-m", "tools.export", *places, *sizes, f"--activations={activations}"])
    return output


@contextlib.contextmanager
def own_server(runner: Runner, bundle: Path) -> Iterator[int]:
    """Serves a bundle, and gives the port."""
    port = free_port()
    command = [sys.executable, "-m", "tools.serve", f"--bundle={bundle}", f"--port={port}"]
    with _served(command, port, environment(), runner.workdir):
        yield port


@contextlib.contextmanager
def peer_server(runner: Runner, plan: Plan, file: Path) -> Iterator[int]:
    """Serves a GGUF file by the peer, and gives the port."""
    assert plan.server is not None
    port = free_port()
    with _served(plan.server.command(file, port, plan.serve.slots, plan.serve.capacity), port, None, runner.workdir):
        yield port


def free_port() -> int:
    """Returns a port that nobody listens at."""
    with socket.socket() as listener:
        listener.bind((_HOST, 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def _served(command: Sequence[str], port: int, env: dict[str, str] | None, cwd: Path) -> Iterator[None]:
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen(command, env=env, cwd=cwd, stdout=said, stderr=said) as process,
    ):
        try:
            _wait(command, process, port, said.fileno())
            yield
        finally:
            process.terminate()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait(command: Sequence[str], process: subprocess.Popen[bytes], port: int, said: int) -> None:
    """Waits until a server is ready.

    Raises:
        BenchError: it ended, or took too long.
    """
    began = time.perf_counter()
    while not _is_ready(port):
        code = process.poll()
        if code is not None:
            with open(said, closefd=False) as file:
                file.seek(0)
                raise failure(command, code, file.read())
        if time.perf_counter() - began > _READY_S:
            raise BenchError(f"{command[0]}: not ready after {_READY_S:.0f} s: see whether it starts by itself")
        time.sleep(_PAUSE_S)


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://{_HOST}:{port}/health", timeout=5) as response:
            return response.status == 200
    except (urllib.error.URLError, OSError):
        return False
