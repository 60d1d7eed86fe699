import doctest
import importlib

import pytest

GRADIENT = ("compile_dag.gradient", "compile_dag.gradient._api", "compile_dag.gradient._rules")
MODULES = ("compile_dag", "compile_dag._context", "compile_dag._record", *GRADIENT)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted
    assert not result.failed
