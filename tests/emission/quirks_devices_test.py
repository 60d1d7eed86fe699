"""Each fault of compile_hlo/quirks is there still: without what avoids it, its cases fail on the device.

A fault that is gone is to leave the room. Without TAPELINE_LONG=1 in the environment a part of them is tried.
"""

import os
from pathlib import Path
from typing import Final

import pytest

from compile_hlo.quirks import FAULTS
from lang_core import CompileError, DeviceError
from run_iree import Session, target_of_device
from run_iree._device_testing import compiled, device_params
from tests.emission._all_cases import CASES_BY_NAME
from tests.emission._cases import Case
from tests.emission._device_cases import limit_of
from tests.emission._support import assert_agrees, eager_results, text_without

# One of so many faults of a device is tried.
_SAMPLED: Final = 6
# It writes outside of its memory there, and the process may die.
_FATAL: Final = {("scatter_outside", "local-task"), ("scatter_outside", "vulkan")}


def _fails(case: Case, text: str, device: str, folder: Path) -> bool:
    try:
        with Session(compiled(text, device, folder), device) as session:
            results = [tensor.numpy() for tensor in session.function(case.name)(*case.inputs)]
            assert_agrees(results, eager_results(case), case)
    except (AssertionError, CompileError, DeviceError):
        return True
    return False


@pytest.mark.parametrize("device", device_params(shared=True))
def test_faults_of_a_device_are_there(device: str, tmp_path: Path) -> None:
    target = target_of_device(device)
    faults = [fault for fault in FAULTS if target in fault.targets]
    gone = []
    for fault in faults if os.environ.get("TAPELINE_LONG") else faults[::_SAMPLED]:
        for name in fault.cases if (fault.name, device) not in _FATAL else ():
            case = CASES_BY_NAME[name]
            if limit_of(case, device) is None and not _fails(case, text_without(fault, case, target), device, tmp_path):
                gone.append(f"{fault.name}: {name}")
    assert not gone, f"{device} gets these cases right by itself: remove the faults, or choose other cases: {gone}"
