"""Every file of the tree keeps the rules of the house; ARCHITECTURE.md has the figures."""

import pytest

from tests.layering import _measures as measures
from tests.layering._sources import workspace_root


@pytest.fixture(scope="module")
def tree() -> measures.Tree:
    return measures.Tree(workspace_root())


def test_no_module_imports_itself_through_others(tree: measures.Tree) -> None:
    assert not measures.circles(tree.imports)


def test_docstrings_open_with_a_verb_or_a_noun(tree: measures.Tree) -> None:
    wrong = measures.banned_docstrings(tree)
    assert not wrong, "say what it returns, does or is:\n" + "\n".join(map(str, wrong))


def test_names_say_what_they_hold(tree: measures.Tree) -> None:
    wrong = measures.banned_bindings(tree)
    assert not wrong, "name the value:\n" + "\n".join(map(str, wrong))
