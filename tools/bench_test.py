"""The program from outside: flags, exit codes, what it writes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def bench(tmp_path: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "BUILD_WORKING_DIRECTORY": str(tmp_path)}
    command = [sys.executable, "-m", "tools.bench", "--sizes=tiny", *flags]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_figures_go_where_they_are_wanted(tmp_path: Path) -> None:
    (tmp_path / "docs.md").write_text("<!-- eager: begin -->\n<!-- eager: end -->\n")
    done = bench(tmp_path, "--suite=eager", "--rounds=2", "--output=f.json", "--write_docs=docs.md", "--workdir=.")
    assert done.returncode == 0, done.stderr
    assert "Microseconds per call" in done.stdout
    assert json.loads((tmp_path / "f.json").read_text())[0]["rounds"] == 2
    assert "`bazel run //tools:bench -- --suite eager --rounds 2 --sizes tiny`" in (tmp_path / "docs.md").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["docs.md", "f.json"]


_WRONG = [
    ("--suite=egaer", "error: --suite=egaer: unknown: there are lowering, "),
    ("--suite=egaer", "; did you mean 'eager'?"),
    ("--suite=", "error: --suite= names nothing: name some of lowering, "),
    ("--gguf=none.gguf", "none.gguf: no such file: name a GGUF file"),
    ("--bits=q8_0", "error: --bits=q8_0: unknown: there are 32, 16, Q8_0, "),
    ("--checkpoint=nowhere", "nowhere: there is no config.json: give a Hugging Face directory"),
    ("--workdir=nowhere", "nowhere: no directory that can be written: make it, or name another"),
    ("--rounds=0", "rounds"),
    ("--peer=lama.cpp", "peer"),
    (
        "--peer_python=python3",
        "error: --peer_python is the peer's interpreter: give --peer=llama.cpp or --peer=transformers too",
    ),
    (
        "--suite=engines --bits=MXFP4",
        "error: --bits=MXFP4: the suite engines has 32, 16, Q8_0, Q4_0: name one of them",
    ),
    ("--suite=rows --bits=32", "error: --bits=32: the suite rows has 16, Q8_0, Q4_0: name one of them"),
    ("--suite=pages --bits=16", "error: --bits=16: the suite pages has Q8_0, Q4_0: name one of them"),
]
# Imports the program once and runs it in a fork per flag; prints exit code and standard error of each.
_FORKS = """
import json, os, sys, tempfile
from tapeline import cli
from tools import bench
answers = {}
for flag in sys.argv[1:]:
    with tempfile.TemporaryFile("w+") as errors:
        if (child := os.fork()) == 0:
            os.dup2(errors.fileno(), 2)
            sys.argv = ["bench", "--sizes=tiny", *flag.split()]
            cli.run(bench.main)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        errors.seek(0)
        answers[flag] = (code, errors.read())
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """Exit code and standard error of the program by wrong flag."""
    folder = tmp_path_factory.mktemp("work")
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "BUILD_WORKING_DIRECTORY": str(folder)}
    # Without a folder of its own Matplotlib makes one, which each fork would remove at its end.
    env["MPLCONFIGDIR"] = str(tmp_path_factory.mktemp("matplotlib"))
    command = [sys.executable, "-c", _FORKS, *dict(_WRONG)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize(("flag", "message"), _WRONG)
def test_wrong_flags(flag: str, message: str, refusals: dict[str, tuple[int, str]]) -> None:
    code, errors = refusals[flag]
    assert code == 2
    assert message in errors
    assert "Traceback" not in errors


def test_a_peer_that_cannot_be_started(tmp_path: Path) -> None:
    done = bench(tmp_path, "--suite=eager", "--peer=llama.cpp", "--peer_python=bin/nothing")
    assert done.returncode == 2
    assert f"error: --peer_python={tmp_path}/bin/nothing: cannot be started (No such file or directory)" in done.stderr


def test_an_interpreter_without_the_peer_is_said_to_be_so(tmp_path: Path) -> None:
    done = bench(tmp_path, "--suite=eager", "--rounds=1", "--peer=llama.cpp")
    assert done.returncode == 0, done.stderr
    assert f"{sys.executable} has no llama-cpp-python: nothing is measured of llama.cpp" in done.stderr
