"""Programs that are interrupted: in Python, in native code, in destructors, at their end."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, cast

import pytest

from lang_core import python_command

_INTERRUPTED = (130, "error: interrupted\n")

# A module whose function main is the program; it says when it is ready.
_HEAD = """
import atexit, ctypes, os, select, signal, subprocess, sys, tempfile, time
from tapeline import interrupts
from tapeline.interrupts import _guard

def ready(word="ready"):
    print(word, flush=True)

def block():
    "Stays in native code, which no signal ends."
    library, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(256)
    ready()
    while True:
        library.pthread_mutex_lock(mutex)

def main(arguments):
"""
_START = "from tapeline.interrupts import run_program; run_program('program', [])"


def _started(folder: Path, body: str, *, start: str = _START) -> subprocess.Popen[str]:
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    (folder / "program.py").write_text(_HEAD + lines)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    return subprocess.Popen(
        python_command("-c", start),
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _expect(process: subprocess.Popen[str], word: str) -> None:
    """Waits for a word of the program."""
    line = cast(IO[str], process.stdout).readline()
    if line != f"{word}\n":
        process.kill()
        pytest.fail(f"expected {word!r}, found {line!r}: {process.communicate()[1]}")


def _outcome(process: subprocess.Popen[str], presses: int = 1) -> tuple[int, str]:
    """Interrupts a program when it is ready, and again when it says so; returns exit code and stderr."""
    for _ in range(presses):
        _expect(process, "ready")
        _interrupt(process)
    _, errors = process.communicate(timeout=60)
    return process.returncode, errors


def _interrupt(process: subprocess.Popen[str]) -> None:
    """Sends an interrupt and waits until it is taken: two that are pending at once are one."""
    process.send_signal(signal.SIGINT)
    while process.poll() is None:
        status = Path(f"/proc/{process.pid}/status").read_text()
        pending = re.search(r"^ShdPnd:\s*(\w+)", status, re.MULTILINE)
        if pending and not int(pending[1], 16) >> (signal.SIGINT - 1) & 1:
            return
        time.sleep(0.01)


def test_a_program_that_is_not_interrupted_ends_as_it_says(tmp_path: Path) -> None:
    process = _started(tmp_path, "print(arguments, flush=False)\nreturn 3")
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out, errors) == (3, "[]\n", "")


def test_temporary_files_are_removed(tmp_path: Path) -> None:
    body = f"with tempfile.TemporaryDirectory(dir={str(tmp_path)!r}, prefix='t-'):\n    ready()\n    time.sleep(600)"
    assert _outcome(_started(tmp_path, body)) == _INTERRUPTED
    assert not list(tmp_path.glob("t-*"))


def test_a_native_module_is_initialized_before_the_interrupt_comes(tmp_path: Path) -> None:
    # Code in the place of a module's own initialization: an exception in it would be the end of jaxlib's.
    body = """
import _imp, importlib.machinery, importlib.util
def initialize(spec):
    ready()
    deadline = time.monotonic() + 0.5
    while time.monotonic() < deadline:
        pass
    print("initialized", flush=True)
    return create(spec)
create, _imp.create_dynamic = _imp.create_dynamic, initialize
path = sys.modules["_ctypes"].__file__
loader = importlib.machinery.ExtensionFileLoader("_ctypes", path)
importlib.util.module_from_spec(importlib.util.spec_from_file_location("_ctypes", path, loader=loader))
time.sleep(600)
"""
    process = _started(tmp_path, body)
    _expect(process, "ready")
    _interrupt(process)
    _expect(process, "initialized")
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == _INTERRUPTED


def test_native_code_does_not_keep_a_program_nor_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    body = f"""
child = subprocess.Popen(["bash", "-c", "sleep 600 & echo $! >> {pids}; wait"], process_group=0)
while not os.path.exists({str(pids)!r}) or not open({str(pids)!r}).read().endswith("\\n"):
    time.sleep(0.01)
open({str(pids)!r}, "a").write(str(child.pid))
block()
"""
    assert _outcome(_started(tmp_path, body)) == _INTERRUPTED
    end = time.monotonic() + 60
    while any(map(_is_alive, pids.read_text().split())):  # a killed process ends when it is scheduled next
        assert time.monotonic() < end
        time.sleep(0.01)


def _is_alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):  # it ended before, or while it was read
        return False


def test_a_second_interrupt_ends_a_program_at_once(tmp_path: Path) -> None:
    body = "_guard._GRACE = 1e6\ntry:\n    ready()\n    time.sleep(600)\nfinally:\n    block()"
    assert _outcome(_started(tmp_path, body), presses=2) == _INTERRUPTED


@pytest.mark.parametrize(
    "body",
    [
        "try:\n    ready()\n    time.sleep(600)\nexcept BaseException:\n    time.sleep(600)",
        "try:\n    ready()\n    time.sleep(600)\nexcept BaseException:\n    return 0",
        "try:\n    ready()\n    time.sleep(600)\nexcept BaseException:\n    raise SystemExit(130)",
        "class A:\n    def __del__(self):\n        ready()\n        time.sleep(600)\nA()\ntime.sleep(600)",
        "atexit.register(lambda: (ready(), time.sleep(600)))\nreturn 0",
        "atexit.register(block)\nreturn 0",
    ],
)
def test_an_interrupt_is_not_lost(tmp_path: Path, body: str) -> None:
    assert _outcome(_started(tmp_path, body)) == _INTERRUPTED


def test_an_interrupt_that_other_code_wraps_is_one_line(tmp_path: Path) -> None:
    body = """
from tapeline.cli import guarded
def work():
    try:
        ready()
        time.sleep(600)
    except KeyboardInterrupt as error:
        raise RuntimeError("a callback failed") from error
return guarded(work)
"""
    assert _outcome(_started(tmp_path, body)) == _INTERRUPTED


def test_the_first_interrupt_can_be_deferred(tmp_path: Path) -> None:
    body = """
signal.signal(signal.SIGINT, lambda *_: os.write(1, b"stopped\\n"))
with interrupts.first_deferred():
    ready()
    time.sleep(3)
return 7
"""
    waiting = "while not select.select([0], [], [], 0.02)[0]: pass"  # Python's handler runs between two calls
    process = _started(tmp_path, "_guard._GRACE = 0.0\n" + body.replace("time.sleep(3)", waiting))
    _expect(process, "ready")
    process.send_signal(signal.SIGINT)
    _expect(process, "stopped")
    _, errors = process.communicate("\n", timeout=60)
    assert (process.returncode, errors) == (7, "")
    silent = body.replace('os.write(1, b"stopped\\n")', "None").replace("time.sleep(3)", "block()")
    process = _started(tmp_path, f"_guard._GRACE = 1e6\n{silent}")
    _expect(process, "ready")
    _interrupt(process)
    assert _outcome(process) == _INTERRUPTED


def test_signals_are_taken_back_from_an_event_loop(tmp_path: Path) -> None:
    body = """
import asyncio
async def loop():
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, lambda: None)
with interrupts.other_handlers():
    asyncio.run(loop())
block()
"""
    assert _outcome(_started(tmp_path, body)) == _INTERRUPTED


def test_a_program_that_ignores_interrupts_goes_on_to(tmp_path: Path) -> None:
    start = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); {_START}"
    process = _started(tmp_path, "ready()\nsys.stdin.readline()\nreturn 4", start=start)
    _expect(process, "ready")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate("\n", timeout=60)
    assert (process.returncode, errors) == (4, "")


def test_a_deadline_ends_a_process_with_its_code(tmp_path: Path) -> None:
    body = "deadline = interrupts.Deadline()\ndeadline.set(0.0, 9, lambda: print('late', file=sys.stderr))\nblock()"
    process = _started(tmp_path, body)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (9, "late\n")
    body = "deadline = interrupts.Deadline()\ndeadline.set(1e6, 9, print)\ndeadline.cancel()\nreturn 2"
    process = _started(tmp_path, body)
    process.communicate(timeout=60)
    assert process.returncode == 2
