import os
import sys
from pathlib import Path

import pytest

from tools.benching.suites._run import BenchError
from tools.benching.suites._worker import Worker

_ECHO = """
import json, os, sys
print(json.dumps({"pid": os.getpid(), "here": os.getcwd()}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if "quit" in asked:
        sys.exit("nothing more to say")
    print(json.dumps({"twice": 2 * asked["n"]}), flush=True)
"""


def worker(tmp_path: Path, program: str = _ECHO) -> Worker:
    return Worker([sys.executable, "-c", program], os.environ, tmp_path)


def test_it_is_ready_answers_and_ends(tmp_path: Path) -> None:
    with worker(tmp_path) as started:
        assert started.ready == {"pid": started.pid, "here": str(tmp_path.resolve())}
        assert [started.ask(n=n) for n in (3, 4)] == [{"twice": 6}, {"twice": 8}]
    assert not Path(f"/proc/{started.pid}").exists()


def test_one_that_ends_says_why(tmp_path: Path) -> None:
    with worker(tmp_path) as started:
        with pytest.raises(BenchError, match=r"ended with code 1: nothing more to say"):
            started.ask(quit=True)
        with pytest.raises(BenchError, match=r"ended with code 1: nothing more to say"):
            started.ask(n=1)


def test_one_that_is_never_ready_says_why(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"(?s)ended with code 1: .*ZeroDivisionError"):
        worker(tmp_path, "1 / 0")
