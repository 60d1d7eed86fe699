"""A checkpoint, exported and run on a device, says what transformers says."""

import os
from pathlib import Path

import numpy as np
import pytest

from lang_core import InputError
from run_iree import available, target_of_device
from run_iree._device_testing import sharing
from tests.goldens.cases import CASES
from tests.goldens.device_cases import BY_DEFAULT, EVERYWHERE, LONG, LONG_EVERYWHERE
from tests.goldens.golden_files import read_golden
from tests.product._bundles import export_case, greedy

_DEVICE = os.environ.get("TAPELINE_DEVICE", "local-task")
_TOLERANCE = 2e-4  # of the greatest logit
_HERE = [
    pytest.param(_DEVICE, marks=() if available(_DEVICE)[0] else pytest.mark.skip(reason=available(_DEVICE)[1])),
]

_CASES = [*EVERYWHERE]
if _DEVICE == "local-task":
    _CASES += BY_DEFAULT
# Held to transformers by ragged_test, prompt_memory_test and speculation_devices_test too.
if os.environ.get("TAPELINE_LONG"):
    _CASES += LONG if _DEVICE == "local-task" else LONG_EVERYWHERE


@pytest.fixture(params=_HERE)
def device(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize(("name", "chunk", "shards"), _CASES)
def test_a_bundle_generates_what_transformers_does(
    name: str, chunk: int, shards: int, device: str, tmp_path: Path
) -> None:
    case, golden = CASES[name], read_golden(name)
    prompt = list(case.prompt[0])
    capacity = len(prompt) + case.steps - 1  # not one position more than needed
    bundle = export_case(
        case,
        tmp_path,
        shards=shards,
        sequence=chunk,
        max_sequence=max(capacity, chunk),
        target=(target_of_device(device),),
    )
    for shared_device in sharing(device):
        tokens, logits = greedy(bundle, shared_device, prompt, case.steps)
        expected = golden.logits[0]
        assert tokens == golden.tokens[0].tolist()
        error = np.abs(logits - expected).max(axis=-1) / np.abs(expected).max(axis=-1)
        assert error.max() < _TOLERANCE, (shared_device, error)
    if capacity >= chunk:
        with pytest.raises(InputError, match=f"need {capacity + 1} positions, and {capacity} are there"):
            greedy(bundle, device, prompt, case.steps + 1)
