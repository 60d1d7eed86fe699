"""Server processes of tests, and connections to them."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

from tests.product._modules import shared_modules

_START_SECONDS: Final = 300


@dataclass(slots=True)
class ServerProcess:
    """``tapeline serve`` in a process of its own.

    Attributes:
        process: the process.
        port: where it listens.
        log: file with what it writes to stderr.
    """

    process: subprocess.Popen[str]
    port: int
    log: Path

    @property
    def url(self) -> str:
        """Base of the API's routes."""
        return f"http://127.0.0.1:{self.port}/v1"

    def request(self, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Sends a request and returns status and body: JSON, or text that is none."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            kind = {"content-type": "application/json"}
            connection.request("GET" if body is None else "POST", path, sent, {**kind, **headers})
            response = connection.getresponse()
            text = response.read().decode()
        return response.status, json.loads(text) if text[:1] in "{[" else text

    def connect(self) -> socket.socket:
        """Returns a connection, for requests byte by byte."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def figure(self, name: str) -> float:
        """Returns the sum of a metric over its labels."""
        lines = self.request("/metrics")[1].splitlines()
        pattern = re.compile(rf"tapeline:{name}(?:{{.*}})? (\S+)")
        return sum(float(match[1]) for line in lines if (match := pattern.fullmatch(line)))

    def end(self) -> int:
        """Tells the server to end, and returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def logged(self) -> list[Any]:
        """Returns the lines of its log."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]


def wait_until(holds: Callable[[], object], seconds: float = 30) -> None:
    """Waits until something holds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


@contextlib.contextmanager
def serving(folder: Path, *flags: str) -> Iterator[ServerProcess]:
    """Runs a server for the block, which is ready when the block begins.

    A server that exports its model has the compiled modules of other tests.
    """
    folder.mkdir(exist_ok=True)
    with started(folder, *flags, environment=shared_modules(folder / "cache")) as server:
        if "--certificate" not in " ".join(flags):
            wait_until(lambda: server.request("/health")[0] == 200, _START_SECONDS)
        yield server


@contextlib.contextmanager
def started(folder: Path, *flags: str, environment: Mapping[str, str] | None = None) -> Iterator[ServerProcess]:
    """Runs a server for the block, which listens when the block begins.

    Args:
        folder: where its log and its caches are.
        *flags: of ``tapeline serve``.
        environment: further variables of the environment.
    """
    folder.mkdir(exist_ok=True)
    log = folder / "log"
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "XDG_CACHE_HOME": str(folder / "cache")}
    variables["TAPELINE_TRUST_COMPILED"] = "true"  # this process has compiled the bundles, with another cache
    variables |= environment or {}
    command = [sys.executable, "-m", "tapeline", "serve", "--port=0", *flags]
    with log.open("w") as err:
        process = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=err, text=True)
    with process:
        try:
            assert process.stdout is not None
            match = re.fullmatch(r"https?://\S+:(\d+)\n", process.stdout.readline())
            assert match, log.read_text()
            yield ServerProcess(process, int(match[1]), log)
        finally:
            process.kill()
