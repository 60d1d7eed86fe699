import doctest
from types import ModuleType

import pytest

import transformer_core
from transformer_core import checkpoints, flow, models
from transformer_core.family import _decoder
from transformer_core.flow import _context, _profile

_MODULES = [transformer_core, checkpoints, flow, _context, _profile, models, _decoder]


@pytest.mark.parametrize("module", _MODULES, ids=lambda module: module.__name__)
def test_examples(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted
    assert not result.failed
