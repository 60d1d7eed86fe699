"""Commands in a directory full of modules named like the standard library's, ours and those that we need."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from lang_core import python_command
from tapeline.command import COMMANDS
from tests.product._modules import shared_modules

_PROGRAM: Final = "from tapeline.program import main; main()"  # as the script that is installed
# Runs commands one after the other, as a start takes a second.
_COMMANDS: Final = """
import json, sys
from tapeline.program import main

for arguments in json.loads(sys.argv[1]):
    sys.argv = [sys.argv[0], *arguments]
    try:
        main()
    except SystemExit as end:
        assert not end.code, arguments
"""
_HELP: Final = """
import sys
from tapeline.program import main

for command in sys.argv[1:]:
    sys.argv = [sys.argv[0], command, "--help"]
    try:
        main()
    except SystemExit as end:
        assert not end.code, command
"""
_OURS: Final = (
    "lang_core",
    "compile_dag",
    "compile_hlo",
    "generation",
    "transformer_core",
    "run_iree",
    "run_jax",
    "runtime",
    "autotune",
    "tapeline",
)
_OTHERS: Final = ("absl", "iree", "jax", "jaxlib", "ml_dtypes", "numpy", "rich", "starlette", "tokenizers", "uvicorn")
_MODULE: Final = """
with open({marks!r}, "a") as file:
    file.write(__file__ + "\\n")
raise SystemExit(7)
"""


@pytest.fixture(scope="module")
def marks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """File that names each module of the directory ``here`` beside it that was run."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "here").mkdir()
    text = _MODULE.format(marks=str(folder / "marks"))
    for name in {*sys.stdlib_module_names, "sitecustomize", "usercustomize"}:
        (folder / "here" / f"{name}.py").write_text(text)
    for name in (*_OURS, *_OTHERS):
        (folder / "here" / name).mkdir()
        (folder / "here" / name / "__init__.py").write_text(text)
    return folder / "marks"


def _unsafe() -> dict[str, str]:
    """Returns the environment without PYTHONSAFEPATH, which Bazel sets and users do not."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}


def _run(marks: Path, *arguments: str, program: str = _PROGRAM) -> subprocess.CompletedProcess[str]:
    environment = _unsafe() | {
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
        "XDG_CACHE_HOME": str(marks.parent / "cache"),
        "TAPELINE_MODULE_CACHE": "64MiB",  # a second export of the model compiles nothing
        **shared_modules(marks.parent / "cache"),
    }
    command = [*python_command("-c", program), *arguments]
    return subprocess.run(
        command, cwd=marks.parent / "here", env=environment, text=True, capture_output=True, check=False, timeout=600
    )


def test_the_directory_is_hostile(marks: Path) -> None:
    program, environment = [sys.executable, "-c", "import pickle"], {**_unsafe(), "PYTHONPATH": ""}
    assert subprocess.run(program, cwd=marks.parent / "here", env=environment, check=False).returncode == 7
    assert marks.read_text().count("pickle.py") == 1
    marks.unlink()


def test_no_module_of_the_directory_is_run_for_help(marks: Path) -> None:
    """One process shows the help of every command, as a start takes a second."""
    done = _run(marks, *sorted(COMMANDS), program=_HELP)
    assert (done.returncode, marks.exists()) == (0, False), done.stderr
    assert done.stdout.count("usage: tapeline ") == len(COMMANDS)


_MODEL: Final = ("--model=demo", "--num_layers=1", "--verify=none")


def test_no_module_of_the_directory_is_run(marks: Path) -> None:
    commands = [
        ("export", *_MODEL, "--output=out"),
        ("generate", "--model=demo", "--prompt=It was", "--max_new_tokens=2", "--verify=none"),
        ("doctor",),
        ("inspect", "--bundle=out"),
        ("compare", "--actual=out", "--reference=eager"),
        ("tune", "list"),
        ("make-checkpoint", "--output=checkpoint"),
    ]
    done = _run(marks, json.dumps(commands), program=_COMMANDS)
    assert (done.returncode, marks.exists()) == (0, False), done.stderr


def test_no_module_of_the_directory_is_run_by_ranks(marks: Path) -> None:
    _run(marks, "export", *_MODEL, "--output=ranks", "--mesh=tp=2", "--target=none")
    flags = ("--bundle=ranks", "--prompt=a", "--backend=jax", "--mesh=tp=2")
    done = _run(marks, "launch", "--processes=2", "--", "generate", *flags)
    assert (done.returncode, marks.exists()) == (0, False), done.stderr
