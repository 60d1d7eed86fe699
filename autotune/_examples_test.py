import doctest
from types import ModuleType

import pytest

import autotune
from autotune import _using
from autotune.kernel import _kernel, _specs
from autotune.records import _labels


@pytest.mark.parametrize("module", [autotune, _kernel, _labels, _specs, _using], ids=lambda module: module.__name__)
def test_examples(module: ModuleType) -> None:
    results = doctest.testmod(module)
    assert results.attempted
    assert not results.failed


def test_the_readme() -> None:
    results = doctest.testfile("README.md", package=autotune)
    assert results.attempted
    assert not results.failed
