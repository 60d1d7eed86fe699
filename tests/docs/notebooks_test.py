"""Notebooks are run anew, and print what they show; each code cell that prints has its output in the file."""

import os
from pathlib import Path
from typing import Final

import nbformat
import pytest

from tools.docs.notebooks import executed, text_outputs

_FOLDER: Final = Path(__file__).parents[2] / "docs" / "notebooks"


def test_there_are_four() -> None:
    assert len(list(_FOLDER.glob("*.ipynb"))) == 4


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives the notebooks' kernel a folder of its own: a sandbox has no home that can be written."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))


# Every second one; with TAPELINE_LONG=1 in the environment all.
_RUN: Final = sorted(_FOLDER.glob("*.ipynb"))[:: 1 if os.environ.get("TAPELINE_LONG") else 2]


@pytest.mark.parametrize("path", _RUN, ids=lambda path: path.stem)
def test_outputs_are_those_of_a_run(path: Path) -> None:
    stored = text_outputs(nbformat.read(path, as_version=4))
    assert any(stored)
    assert text_outputs(executed(path)) == stored
