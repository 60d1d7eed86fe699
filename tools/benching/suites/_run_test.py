import re
import sys
from pathlib import Path

import pytest

from tools.benching.suites._run import BenchError, Runner


def runner(tmp_path: Path, rounds: int = 4) -> Runner:
    return Runner(rounds, tmp_path, lambda line: None)


def test_every_job_runs_once_a_round_and_the_order_changes(tmp_path: Path) -> None:
    order: list[str] = []

    def job(name: str) -> dict[str, int]:
        order.append(name)
        return {"at": len(order)}

    results = runner(tmp_path, 9).interleaved({name: lambda name=name: job(name) for name in "abc"})
    rounds = [order[begin : begin + 3] for begin in range(0, 27, 3)]
    assert all(sorted(names) == ["a", "b", "c"] for names in rounds)
    assert len({tuple(names) for names in rounds}) > 1
    assert [result["at"] for result in results["a"]] == [3 * n + names.index("a") + 1 for n, names in enumerate(rounds)]


def test_fewer_rounds_can_be_asked_for(tmp_path: Path) -> None:
    assert len(runner(tmp_path).interleaved({"a": dict}, 2)["a"]) == 2


def test_processes_are_fresh_run_in_the_workdir_and_find_our_modules(tmp_path: Path) -> None:
    code = "import os, lang_core; print(os.getpid(), os.getcwd())"
    pids = set()
    for _ in range(2):
        pid, where = runner(tmp_path).command([sys.executable, "-c", code]).split()
        assert where == str(tmp_path.resolve())
        pids.add(pid)
    assert len(pids) == 2


def test_a_process_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"(?s)ended with code 1: .*ZeroDivisionError: "):
        runner(tmp_path).command([sys.executable, "-c", "1 / 0"])


def test_the_job_that_fails_is_named(tmp_path: Path) -> None:
    name = "tools.benching.jobs.lower"
    with pytest.raises(BenchError, match=rf"(?s)^{re.escape(name)}: the measured process .*KeyError: 'watch'"):
        runner(tmp_path).job(name)


def test_commands_are_timed(tmp_path: Path) -> None:
    assert runner(tmp_path).timed([sys.executable, "-c", ""]) > 0
