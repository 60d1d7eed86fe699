"""The gated delta rule and the causal convolution on each device, against the eager context."""

from pathlib import Path

import pytest

from compile_hlo.iree import Session, compile_module, target_of_device
from compile_hlo.iree._device_testing import device_params, sharing
from tests.emission._gated_delta_cases import CASES
from tests.emission._support import assert_agrees, eager_results, graph_of, text_of


@pytest.mark.parametrize("device", device_params(shared=True))
def test_devices_agree(device: str, tmp_path: Path):
    source, output = tmp_path / "module.mlir", tmp_path / "module.vmfb"
    source.write_text(text_of(map(graph_of, CASES)))
    compile_module(source, output, target_of_device(device))
    for each in sharing(device):
        with Session(output, each) as session:
            for case in CASES:
                found = [tensor.numpy() for tensor in session.function(case.name)(*case.inputs)]
                assert_agrees(found, eager_results(case), case)
