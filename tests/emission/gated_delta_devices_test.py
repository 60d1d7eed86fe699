"""The gated delta rule and the causal convolution on each device, against the eager context."""

from pathlib import Path

import pytest

from run_iree import Session
from run_iree._device_testing import compiled, device_params, sharing
from tests.emission._gated_delta_cases import CASES
from tests.emission._support import assert_agrees, eager_results, graph_of, text_of


@pytest.mark.parametrize("device", device_params(shared=True))
def test_devices_agree(device: str, tmp_path: Path):
    output = compiled(text_of(map(graph_of, CASES)), device, tmp_path)
    for beside in sharing(device):
        with Session(output, beside) as session:
            for case in CASES:
                results = [tensor.numpy() for tensor in session.function(case.name)(*case.inputs)]
                assert_agrees(results, eager_results(case), case)
