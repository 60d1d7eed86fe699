"""A stop signal ends the process, whatever its engine does: it waits, or native code holds the interpreter."""

import os
import signal
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from typing import IO, Any, cast

import pytest

from lang_core import python_command

_PROGRAM = """
import re, sys, time
from pathlib import Path
from tapeline.server import ServerOptions, serve
from tapeline.server._models import ModelSource
from tapeline.server._script_slots_testing import ScriptSlots
from tapeline.server._server_testing import VOCABULARY, text_model

class Hanging(ScriptSlots):
    def decode(self, rows, token_ids, positions):
        print("hangs", flush=True)
        if sys.argv[2] == "sleep":
            time.sleep(10_000)
        if sys.argv[2] == "native":
            re.match("(a+)+$", "a" * 60 + "b")  # holds the interpreter for years
        return super().decode(rows, token_ids, positions)

def load():
    return text_model(Path(sys.argv[1]), Hanging([5] * 64, VOCABULARY))

options = ServerOptions(port=0, drain_seconds=0.5)
serve([ModelSource("demo", load)], options, on_listening=lambda address: print(address, flush=True))
print("ended", flush=True)
"""


def _started(folder: Path, kind: str) -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen(
        python_command("-c", _PROGRAM, str(folder), kind),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    line = cast(IO[str], process.stdout).readline()
    if not line.startswith("http"):
        process.kill()
        pytest.fail(f"{line}{process.communicate()[1]}")
    return process, int(line.rpartition(":")[2])


def _ask(process: subprocess.Popen[str], port: int) -> HTTPConnection:
    """Sends a request once the model is loaded, and waits until the engine works on it."""
    stderr = cast(IO[str], process.stderr)
    while '"ready"' not in stderr.readline():
        pass
    connection = HTTPConnection("127.0.0.1", port)
    body = '{"prompt": "a", "max_tokens": 4}'
    connection.request("POST", "/v1/completions", body, {"content-type": "application/json"})
    assert cast(IO[str], process.stdout).readline() == "hangs\n"
    return connection


@pytest.mark.parametrize(
    ("kind", "number", "codes"),
    [
        pytest.param(
            "sleep",
            signal.SIGTERM,
            {1, -signal.SIGKILL},  # killed, if the process waits long for a core
            marks=pytest.mark.skipif(not os.environ.get("TAPELINE_LONG"), reason="one more hang: TAPELINE_LONG=1"),
        ),
        ("native", signal.SIGTERM, {-signal.SIGKILL}),
        ("native", signal.SIGINT, {-signal.SIGKILL}),
    ],
)
def test_a_signal_ends_a_server_that_hangs(tmp_path: Path, kind: str, number: int, codes: set[int]) -> None:
    process, port = _started(tmp_path, kind)
    connection = _ask(process, port)
    process.send_signal(number)
    errors = process.communicate(timeout=120)[1]  # without the process beside, years
    connection.close()
    assert process.returncode in codes, errors
    assert '"event": "killed"' in errors or number == signal.SIGINT


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_of_a_server_that_does_not_hang(tmp_path: Path, number: int) -> None:
    process, port = _started(tmp_path, "none")
    connection = _ask(process, port)
    assert connection.getresponse().status == 200
    connection.close()
    process.send_signal(number)
    if number == signal.SIGHUP:  # loads the model again
        stderr: Any = process.stderr
        while '"retired"' not in stderr.readline():
            pass
        process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=120)
    assert (process.returncode, output.splitlines()[-1]) == (0, "ended")


def test_a_server_without_the_process_beside_still_takes_signals(tmp_path: Path) -> None:
    process, port = _started(tmp_path, "none")
    connection = _ask(process, port)
    assert connection.getresponse().status == 200
    connection.close()
    for pid in _children(process.pid):
        os.kill(pid, signal.SIGKILL)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == 0


def _children(parent: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
