"""Fixtures of exports: a model where the user stands, the demo as the program exports it."""

import functools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tapeline.command import main
from tests.goldens.cases import CASES
from tests.goldens.weights import write_checkpoint
from tests.product._bundles import Finished, export, invoke

Export = Callable[..., Finished]
FAST = ("--num_layers=1", "--sequence=6", "--max_sequence=20")


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with ``model``, in two shards, and an earlier ``bundle``."""
    return _good(tmp_path_factory.getbasetemp() / "good")


# A fixture that several files import is made once per file, what it calls once per process.
@functools.cache
def _good(folder: Path) -> Path:
    (folder / "model").mkdir(parents=True)
    write_checkpoint(folder / "model", CASES["llama_gqa"], shards=2)
    export(folder / "model", folder / "bundle", target=(), num_layers=1)
    return folder


@pytest.fixture
def place(good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of ``good`` in which the user stands."""
    shutil.copytree(good, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    return tmp_path


def export_here(capsys: pytest.CaptureFixture[str], *arguments: str) -> Finished:
    """Exports ``model``, where the user stands, to ``bundle``."""
    flags = ("--model=model", "--output=bundle", "--sequence=4", "--max_sequence=8", "--target=none", *arguments)
    return invoke("export", capsys, *flags)


@pytest.fixture
def exporting(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Export:
    """The program, called by a user who stands in tmp_path."""
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    return lambda *arguments: invoke("export", capsys, *arguments)


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One layer of the demo model, as the program exports it; beside it the copy of its report."""
    return _demo(tmp_path_factory.getbasetemp() / "demo")


@functools.cache
def _demo(folder: Path) -> Path:
    folder.mkdir()
    environment = pytest.MonkeyPatch()
    environment.setenv("BUILD_WORKING_DIRECTORY", str(folder))
    code = main(["export", *FAST, "--output=demo", "--report=reports/demo.json"])
    environment.undo()
    assert code == 0
    return folder / "demo"
