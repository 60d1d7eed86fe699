import os
from pathlib import Path

import pytest

from lang_core import OPS
from run_iree import DEVICES
from tools.docs import status_doc

PAGE = Path(__file__).parents[2] / "docs" / "status.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == status_doc.render(), "run: bazel run //tools/docs:status_doc"


def test_every_op_has_a_row_and_every_rule() -> None:
    table = status_doc.render().partition("\nReasons:")[0]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| `")]
    assert [row[0] for row in rows] == [f"| `{name}`" for name in OPS]
    for row in rows:
        assert len(row) == 5 + len(DEVICES)
        assert row[1] == "yes"
        assert row[2] in ("yes", "leaf")
        assert row[3] != "none"
        assert row[-1] != "no |"


def test_main_writes_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").mkdir()
    monkeypatch.setitem(os.environ, "BUILD_WORKSPACE_DIRECTORY", str(tmp_path))
    status_doc.main()
    assert (tmp_path / "docs" / "status.md").read_text(encoding="utf-8") == status_doc.render()
