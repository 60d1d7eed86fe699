import ast
from pathlib import Path

import pytest

from tests.layering import _measures as measures

FUNCTIONS = '''
def outer(x):
    """Says.

    More.
    """
    # Why.
    def inner():
        return 1

    return inner
'''


def test_circles_are_groups_of_modules_that_import_each_other() -> None:
    graph = {"a": ["b"], "b": ["c"], "c": ["b", "d"], "d": [], "e": ["e"]}
    assert measures.circles(graph) == [["b", "c"], ["e"]]


def test_the_depth_counts_the_modules_of_the_longest_chain() -> None:
    graph = {"a": ["b", "d"], "b": ["c"], "c": ["b", "d"], "d": []}
    assert measures.import_depths(graph) == {"a": 3, "b": 2, "c": 2, "d": 1}


def test_functions_count_without_docstrings_comments_and_functions_inside() -> None:
    assert measures.function_lines(FUNCTIONS, ast.parse(FUNCTIONS)) == [2, 2]


def test_public_names_are_those_of_all_or_those_imported_from_our_packages() -> None:
    assert measures.public_names(ast.parse('x = 1\n__all__ = ["a", "b"]')) == ["a", "b"]
    assert measures.public_names(ast.parse("x = 1")) == []
    text = "from typing import Any\nfrom lang_core import export_lazily\nfrom run_iree import Z as z, _a\n"
    assert measures.public_names(ast.parse(f"{text}if Any:\n    from lang_core._b import B")) == ["B", "z"]


@pytest.fixture
def tree(tmp_path: Path) -> measures.Tree:
    package = tmp_path / "lang_core"
    package.mkdir()
    (package / "_a.py").write_text(
        '"""What is here."""\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import lang_core._b\n'
    )
    (package / "_b.py").write_text(
        '"""Whatever."""\nimport lang_core._a\ndef f(each):\n    """Of it."""\n    found = each\n    return found\n'
    )
    return measures.Tree(tmp_path)


def test_circles_below_type_checking_count_and_run_time_imports_are_apart(tree: measures.Tree) -> None:
    assert measures.circles(tree.imports) == [["lang_core._a", "lang_core._b"]]
    assert measures.circles(tree.runtime_imports) == []


def test_imports_by_name_count_in_circles(tmp_path: Path) -> None:
    package = tmp_path / "lang_core"
    package.mkdir()
    (package / "_a.py").write_text("import importlib\ndef f():\n    return importlib.import_module('lang_core._b')\n")
    (package / "_b.py").write_text("import lang_core._a\n")
    assert measures.circles(measures.Tree(tmp_path).imports) == [["lang_core._a", "lang_core._b"]]


def test_docstrings_and_bindings_that_break_the_rules_are_named(tree: measures.Tree) -> None:
    assert list(map(str, measures.banned_docstrings(tree))) == [
        "lang_core/_a.py:1: What is here.",
        "lang_core/_b.py:3: Of it.",
    ]
    assert sorted(map(str, measures.banned_bindings(tree))) == ["lang_core/_b.py:3: each", "lang_core/_b.py:5: found"]
