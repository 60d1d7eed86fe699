import os
from pathlib import Path

import pytest

from tools.docs import models_doc
from transformer_core.models import architectures

PAGE = Path(__file__).parents[2] / "docs" / "models.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == models_doc.render(), "run: bazel run //tools/docs:models_doc"


def test_every_architecture_is_there_and_verified() -> None:
    lines = models_doc.render().splitlines()
    for name in architectures():
        (row,) = [line for line in lines if f"`{name}`" in line.split(" | ")[0]]
        assert " | 0 |" not in row, "no golden model: tests/goldens/README.md says how to make one"


def test_main_writes_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").mkdir()
    monkeypatch.setitem(os.environ, "BUILD_WORKSPACE_DIRECTORY", str(tmp_path))
    models_doc.main()
    assert (tmp_path / "docs" / "models.md").read_text(encoding="utf-8") == models_doc.render()
