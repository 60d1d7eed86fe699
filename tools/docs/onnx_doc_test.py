from pathlib import Path

from tools.docs import onnx_doc

PAGE = Path(__file__).parents[2] / "docs" / "onnx.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == onnx_doc.render(), "run: bazel run //tools/docs:onnx_doc"
