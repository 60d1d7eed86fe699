import doctest
from types import ModuleType

import pytest

from lang_core import kernels
from lang_core.kernels import _kernel, _labels, _specs, _using


@pytest.mark.parametrize("module", [kernels, _kernel, _labels, _specs, _using], ids=lambda module: module.__name__)
def test_examples(module: ModuleType) -> None:
    found = doctest.testmod(module)
    assert found.attempted
    assert not found.failed
