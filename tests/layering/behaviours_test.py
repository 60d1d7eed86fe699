"""The tests that the page of founding behaviours names are in the tree."""

import ast
import functools
from collections.abc import Iterator

import pytest

from tests.layering._sources import workspace_root
from tools.docs._behaviours import BEHAVIOURS


@functools.cache
def names_of_tests(path: str) -> frozenset[str]:
    """Names of the tests of a file; those of a class as ``Class::test``."""
    return frozenset(_tests(ast.parse((workspace_root() / path).read_text(encoding="utf-8"))))


def _tests(parent: ast.AST, prefix: str = "") -> Iterator[str]:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.ClassDef):
            yield from _tests(node, f"{prefix}{node.name}::")
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield prefix + node.name


@pytest.mark.parametrize("test", [behaviour.test for behaviour in BEHAVIOURS])
def test_a_named_test_is_in_the_tree(test: str) -> None:
    path, separator, name = test.partition("::")
    assert separator, f"{test}: write path::test"
    assert path.endswith("_test.py"), test
    assert name in names_of_tests(path), f"{path} has no {name}: update tools/docs/_behaviours.py"
