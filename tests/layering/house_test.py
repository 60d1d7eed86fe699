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


_READER = "lang_core/_json.py"
# A program that imports nothing of this tree, since it forks: it reads the messages of the process that started it.
_OWN_MESSAGES = "tapeline/grammar/_worker.py"


def test_json_is_read_by_one_reader(tree: measures.Tree) -> None:
    """Checks that no product module parses JSON by Python's json, which bounds neither depth nor numbers."""
    wrong = [
        finding
        for finding in measures.calls_of(tree, "json", ("load", "loads"))
        if finding.path not in (_READER, _OWN_MESSAGES) and not finding.path.endswith(("_test.py", "_testing.py"))
    ]
    assert not wrong, "read it by lang_core.json_value, file_json or read_json:\n" + "\n".join(map(str, wrong))


def test_the_reader_of_json_is_seen(tree: measures.Tree) -> None:
    assert _READER in {one.path for one in measures.calls_of(tree, "json", ("load", "loads"))}
