import doctest
from types import ModuleType

import pytest

import autotune
from autotune import _kernel, _labels, _specs, _using


@pytest.mark.parametrize("module", [autotune, _kernel, _labels, _specs, _using], ids=lambda module: module.__name__)
def test_examples(module: ModuleType) -> None:
    found = doctest.testmod(module)
    assert found.attempted
    assert not found.failed
