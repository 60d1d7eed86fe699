import doctest
from types import ModuleType

import pytest

import transformer_core
from transformer_core import checkpoints, models


@pytest.mark.parametrize("module", [transformer_core, checkpoints, models], ids=lambda module: module.__name__)
def test_examples(module: ModuleType) -> None:
    found = doctest.testmod(module)
    assert found.attempted
    assert not found.failed
