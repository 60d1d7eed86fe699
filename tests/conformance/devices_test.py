"""ONNX's operator cases on devices."""

import os
from pathlib import Path

import pytest

from compile_hlo.iree import DEVICES, available
from tests.conformance._onnx_devices import device_failures
from tests.conformance._onnx_selection import LIMITS, SHARED, device_cases, limited_cases

_ASKED = os.environ.get("TAPELINE_DEVICE")


def _device_params() -> list[object]:
    """The device of TAPELINE_DEVICE, or all; absent ones skip and say why."""
    found = []
    for name in (_ASKED,) if _ASKED else [name for name in DEVICES if name != "local-sync"]:
        there, reason = available(name)
        found.append(pytest.param(name, marks=() if there else pytest.mark.skip(reason=reason)))
    return found


@pytest.mark.parametrize("device", _device_params())
def test_cases_run_right(device: str, tmp_path: Path) -> None:
    assert not list(device_failures(device_cases(device), SHARED.get(device, (device,)), tmp_path))


@pytest.mark.parametrize("device", _device_params())
def test_limits_are_still_there(device: str, tmp_path: Path) -> None:
    """A case that runs right is to leave the table."""
    gone = []
    for limit in LIMITS:
        cases = limited_cases(limit, device)
        assert cases or device not in limit.devices, f"{limit} matches no case"
        gone += [(case.name, limit) for case in cases if not list(device_failures([case], (device,), tmp_path))]
    assert not gone, "these limits are gone, remove them"
