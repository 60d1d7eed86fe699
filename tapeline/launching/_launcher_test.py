"""Ranks start together and end together."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest

from lang_core import InputError
from tapeline.launching import launch
from tapeline.launching._environment import environment_of, shares_of

_LAUNCHER: Final = """
import sys
from tapeline.launching import launch
code, error = launch(int(sys.argv[1]), ["--", *sys.argv[3:]], program=sys.argv[2])
if error: print("error:", error, file=sys.stderr)
sys.exit(code)
"""

_RANK: Final = """
import os, signal, sys, time
from pathlib import Path
from tapeline.launching import guard_rank, stdout_is_ours
guard_rank()
rank = int(next(flag for flag in sys.argv if flag.startswith("--process_id=")).partition("=")[2])
words = sys.argv[sys.argv.index("--") + 1:]
folder = Path(words[0])
def there():
    new = folder / f"{rank}.new"
    new.write_text(str(os.getpid()))
    new.rename(folder / f"{rank}.pid")
stdout_is_ours(wanted=rank == 0)
"""
_SLEEPS: Final = _RANK + "there(); time.sleep(600)\n"


def _started(program: str, ranks: int, folder: Path, *words: str, wait: bool = True) -> subprocess.Popen[str]:
    """Starts a launcher; waits until its ranks are there."""
    launcher = subprocess.Popen(
        [sys.executable, "-c", _LAUNCHER, str(ranks), program, str(folder), *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if wait:
        _until(lambda: len(list(folder.glob("*.pid"))) == ranks)
    return launcher


def _until(true: object) -> None:
    deadline = time.monotonic() + 60
    while not (true() if callable(true) else true):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _pid(folder: Path, rank: int) -> int:
    return int((folder / f"{rank}.pid").read_text())


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # gone before, or while it was read
        return False


def _none_is_left(folder: Path) -> None:
    pids = [int(path.read_text()) for path in folder.glob("*.pid")]
    _until(lambda: not any(map(_is_alive, pids)))


def test_output_of_rank_0_is_the_programs(tmp_path: Path) -> None:
    program = _RANK + (
        "print('out', rank, words[1:]); print('err', rank, file=sys.stderr); there()\n"
        "os.write(1, b'a library writes\\n')\n"
    )
    launcher = _started(program, 3, tmp_path, "a", "--b=c d", wait=False)
    out, err = launcher.communicate(timeout=60)
    assert (launcher.returncode, out) == (0, "out 0 ['a', '--b=c d']\n")
    assert sorted(err.splitlines()) == sorted(
        [f"[{rank}] err {rank}" for rank in range(3)]
        + [f"[{rank}] a library writes" for rank in range(3)]
        + [f"[{rank}] out {rank} ['a', '--b=c d']" for rank in (1, 2)]
    )


@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_that_is_killed_ends_the_others_and_is_named(tmp_path: Path, rank: int) -> None:
    launcher = _started(_SLEEPS, 3, tmp_path)
    os.kill(_pid(tmp_path, rank), signal.SIGKILL)
    _, err = launcher.communicate(timeout=30)
    assert launcher.returncode == 1
    assert err == f"error: rank {rank} was killed by signal 9 (SIGKILL): the other ranks were ended\n"
    _none_is_left(tmp_path)


@pytest.mark.parametrize("code", [1, 2, 3])
def test_exit_codes_are_kept(tmp_path: Path, code: int) -> None:
    program = _RANK + "there()\nif rank == int(words[1]): sys.exit(int(words[2]))\ntime.sleep(600)\n"
    for rank, said in ((0, ""), (1, f"error: rank 1 ended with exit code {code}: the other ranks were ended\n")):
        launcher = _started(program, 2, tmp_path, str(rank), str(code), wait=False)
        _, err = launcher.communicate(timeout=60)
        assert (launcher.returncode, err) == (code, said)
        _none_is_left(tmp_path)


def test_ranks_that_hear_nothing_are_killed(tmp_path: Path) -> None:
    deaf = "for s in (signal.SIGTERM, signal.SIGINT): signal.signal(s, signal.SIG_IGN)\n"
    launcher = _started(_RANK + deaf + "there(); time.sleep(600)\n", 2, tmp_path)
    os.kill(_pid(tmp_path, 1), signal.SIGKILL)
    _, err = launcher.communicate(timeout=30)
    assert launcher.returncode == 1
    assert "rank 1 was killed by signal 9" in err
    _none_is_left(tmp_path)


def test_an_interrupt_is_for_rank_0_with_which_the_others_end(tmp_path: Path) -> None:
    handler = "def told(number, _): print('got', number, flush=True); sys.exit(130)\n"
    deaf = "if rank: signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    program = f"{_RANK}{handler}{deaf}signal.signal(signal.SIGINT, told); there(); time.sleep(600)\n"
    launcher = _started(program, 2, tmp_path)
    launcher.send_signal(signal.SIGINT)
    out, err = launcher.communicate(timeout=30)
    assert (launcher.returncode, out, err) == (130, f"got {signal.SIGINT}\n", "")
    _none_is_left(tmp_path)


def test_a_second_interrupt_kills_ranks_that_hear_nothing(tmp_path: Path) -> None:
    deaf = "signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    launcher = _started(_RANK + deaf + "there(); time.sleep(600)\n", 2, tmp_path)
    launcher.send_signal(signal.SIGINT)
    while signal.SIGINT in _pending(launcher.pid):  # two that are pending at once are one
        time.sleep(0.01)
    launcher.send_signal(signal.SIGINT)
    _, err = launcher.communicate(timeout=30)
    assert launcher.returncode == 130, err
    _none_is_left(tmp_path)


def _pending(pid: int) -> set[int]:
    """Returns the signals that a process has not taken yet."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    mask = int(next(line for line in lines if line.startswith("ShdPnd:")).split()[1], 16)
    return {number for number in range(1, 65) if mask >> (number - 1) & 1}


def test_signals_are_passed_on(tmp_path: Path) -> None:
    number = signal.SIGTERM
    handler = "def told(number, _): print('got', number, flush=True); sys.exit(0)\n"
    launcher = _started(_RANK + handler + f"signal.signal({number}, told); there(); time.sleep(600)\n", 2, tmp_path)
    launcher.send_signal(number)
    out, err = launcher.communicate(timeout=30)
    assert (launcher.returncode, out, err) == (0, f"got {number}\n", f"[1] got {number}\n")
    (again := tmp_path / "again").mkdir()
    launcher = _started(_SLEEPS, 2, again)
    launcher.send_signal(signal.SIGTERM)
    _, err = launcher.communicate(timeout=30)
    assert (launcher.returncode, err) == (128 + signal.SIGTERM, "")
    _none_is_left(again)


def test_a_launcher_that_is_killed_leaves_no_orphans(tmp_path: Path) -> None:
    deaf = "for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(s, signal.SIG_IGN)\n"
    launcher = _started(_RANK + deaf + "there(); time.sleep(600)\n", 3, tmp_path)
    launcher.kill()
    launcher.wait()
    _none_is_left(tmp_path)
    for pipe in (launcher.stdout, launcher.stderr):
        assert pipe is not None
        pipe.close()


def test_a_rank_has_cores_of_its_own_and_one_device(tmp_path: Path) -> None:
    program = _RANK + "(folder / f'{rank}.cores').write_text(repr(os.sched_getaffinity(0))); there()\n"
    launcher = _started(program, 2, tmp_path, wait=False)
    launcher.communicate(timeout=60)
    assert launcher.returncode == 0
    shares = shares_of([*os.sched_getaffinity(0)], 2)
    assert [(tmp_path / f"{rank}.cores").read_text() for rank in range(2)] == [repr(share) for share in shares]
    given = {"XLA_FLAGS": "--a --xla_force_host_platform_device_count=8", "HOME": "/h"}
    environment = environment_of(1, 2, given, "secret", graphics_cards=4)
    assert (environment["XLA_FLAGS"], environment["JAX_LOCAL_DEVICE_IDS"], environment["HOME"]) == ("--a", "1", "/h")
    assert "JAX_LOCAL_DEVICE_IDS" not in environment_of(1, 2, given, "secret", graphics_cards=1)


def test_no_processes() -> None:
    with pytest.raises(InputError, match=r"processes=0: expected 1 or more"):
        launch(0, ["generate"])
