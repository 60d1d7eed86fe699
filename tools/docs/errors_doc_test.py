from pathlib import Path
from typing import Final

from tools.docs import errors_doc

_PAGE: Final = Path(__file__).parents[2] / "docs" / "errors.md"


def test_the_page_is_up_to_date() -> None:
    assert _PAGE.read_text(encoding="utf-8") == errors_doc.render(), "run: bazel run //tools/docs:errors_doc"
