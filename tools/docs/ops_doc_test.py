import os
from pathlib import Path

import pytest

from lang_core import OPS
from tools.docs import ops_doc
from tools.docs._ops_json import render_json

PAGE = Path(__file__).parents[2] / "docs" / "ops.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == ops_doc.render(), "run: bazel run //tools/docs:ops_doc"


def test_every_op_and_constraint_is_there() -> None:
    text = ops_doc.render()
    for op in OPS.values():
        _, _, part = text.partition(f"\n### {op.name}\n")
        part = part.partition("\n### ")[0]
        assert all(f"`{attribute}`" in part for attribute in op.attributes), op
        assert part.count("\n- C") == len(op.constraints), op
    assert text.count("\n### ") >= len(OPS) + 20


def test_composites_are_listed_with_their_arguments() -> None:
    text = ops_doc.render()
    for heading in (
        "attention(q, k, v, mask, scale, softcap, bias)",
        "softmax(x, axis, where)",
        "top_k(x, k, axis)",
        "linear(x, weight, bias)",
        "fori_loop(stop, body, init)",
        "placeholder(name, shape, dtype)",
    ):
        assert f"\n### {heading}\n" in text
    assert "while_loop" not in text  # it is the method of the op `while`


def test_main_writes_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").mkdir()
    monkeypatch.setitem(os.environ, "BUILD_WORKSPACE_DIRECTORY", str(tmp_path))
    ops_doc.main()
    assert (tmp_path / "docs" / "ops.md").read_text(encoding="utf-8") == ops_doc.render()
    assert (tmp_path / "docs" / "ops.json").read_text(encoding="utf-8") == render_json()
