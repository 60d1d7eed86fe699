"""Every file of the tree keeps the rules of the house; ARCHITECTURE.md has the figures."""

import statistics

import pytest

from tests.layering import _measures as measures
from tests.layering._sources import workspace_root


@pytest.fixture(scope="module")
def tree() -> measures.Tree:
    return measures.Tree(workspace_root())


def test_no_module_imports_itself_through_others(tree: measures.Tree) -> None:
    assert not measures.circles(tree.imports)


def test_files_are_short(tree: measures.Tree) -> None:
    long = [f"{path}: {tree.lines(path)} lines" for path in tree.texts if tree.lines(path) > measures.MOST_FILE_LINES]
    assert not long, f"at most {measures.MOST_FILE_LINES} lines, split these files:\n" + "\n".join(long)


def test_functions_are_short(tree: measures.Tree) -> None:
    sizes = [size for path, text in tree.texts.items() for size in measures.function_lines(text, tree.syntax[path])]
    assert statistics.median(sizes) <= measures.MOST_MEDIAN_FUNCTION_LINES


def test_build_files_are_short(tree: measures.Tree) -> None:
    assert measures.build_lines(tree.root) <= measures.MOST_BUILD_LINES


def test_docstrings_open_with_a_verb_or_a_noun(tree: measures.Tree) -> None:
    wrong = measures.banned_docstrings(tree)
    assert not wrong, "say what it returns, does or is:\n" + "\n".join(map(str, wrong))


def test_names_say_what_they_hold(tree: measures.Tree) -> None:
    wrong = measures.banned_bindings(tree)
    assert not wrong, "name the value:\n" + "\n".join(map(str, wrong))
