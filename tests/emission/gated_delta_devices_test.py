"""The gated delta rule and the causal convolution on each device, against the eager context.

Without TAPELINE_LONG=1 in the environment devices run a part of the cases.
"""

import os
from pathlib import Path

import pytest

from run_iree import Session
from run_iree._device_testing import compiled, device_params, sharing
from tests.emission._gated_delta_cases import CASES
from tests.emission._support import assert_agrees, eager_results, graph_of, text_of

# One token at once; chunks with gates per head and per channel, and none.
_SAMPLED = (
    "gated_delta_1_head",
    "gated_delta_21_head",
    "gated_delta_13_channel",
    "gated_delta_6_none",
    "causal_conv_7",
)


@pytest.mark.parametrize("device", device_params(shared=True))
def test_devices_agree(device: str, tmp_path: Path):
    whole = bool(os.environ.get("TAPELINE_LONG"))
    cases = [case for case in CASES if whole or case.name in _SAMPLED]
    assert len(cases) >= len(_SAMPLED)
    output = compiled(text_of(map(graph_of, cases)), device, tmp_path)
    for beside in sharing(device):
        with Session(output, beside) as session:
            for case in cases:
                results = [tensor.numpy() for tensor in session.function(case.name)(*case.inputs)]
                assert_agrees(results, eager_results(case), case)
