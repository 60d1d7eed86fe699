from pathlib import Path

import pytest

from tests.layering._measures import Tree
from tools.docs import map_doc

PAGE = Path(__file__).parents[2] / "ARCHITECTURE.md"
FILES = {
    "lang_core/__init__.py": '"""Ops."""\n\nfrom lang_core._ops import add\n\n__all__ = ["add"]\n',
    "lang_core/_ops.py": '"""What adds."""\n\ndef add(x, y):\n    """Adds."""\n    return x + y\n',
    "lang_core/BUILD.bazel": "a\nb\n",
    "BUILD.bazel": "c\n",
}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    monkeypatch.setattr(map_doc, "LAYERS", ["lang_core"])
    for path, text in {**FILES, "tools/_tool.py": "def tool():\n    pass\n"}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return Tree(tmp_path)


def test_the_section_has_a_row_per_package_and_a_line_per_rule(tree: Tree) -> None:
    section = map_doc.render(tree)
    assert "| `lang_core` | 2 | 10 | 1 | 2 | 5 | 5 | 2 |\n| `tools` | 1 | 2 | 0 | 1 | 2 | 2 | 2 |\n" in section
    assert "circles, also below `if TYPE_CHECKING:` (rule: 0): 0\n" in section
    assert "- lines of all BUILD files: 3\n" in section
    assert section.endswith("- docstrings that open with a banned word (rule: 0): 1")


def test_the_page_keeps_what_is_around_the_markers() -> None:
    page = f"before\n{map_doc.BEGIN}\nold\n{map_doc.END}\nafter\n"
    assert map_doc.replaced(page, "new") == f"before\n{map_doc.BEGIN}\nnew\n{map_doc.END}\nafter\n"


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="the page has no <!-- measures: begin -->"):
        map_doc.replaced("text", "new")


def test_the_committed_page_has_the_section() -> None:
    page = PAGE.read_text()
    assert all(f"| `{package}` |" in page.split(map_doc.BEGIN)[1] for package in map_doc.LAYERS)
