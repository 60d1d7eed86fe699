"""ONNX's operator cases on devices.

By default each op runs on one of the devices, in turn, and attention on the CPU; with TAPELINE_LONG=1 in the
environment every case that a device can run.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from run_iree._device_testing import device_params, sharing
from tests.conformance._onnx_devices import device_failures
from tests.conformance._onnx_selection import LIMITS, device_cases, limited_cases
from tests.emission._device_cases import Limit


@pytest.mark.parametrize("device", device_params(shared=True))
def test_cases_run_right(device: str, tmp_path: Path) -> None:
    cases = device_cases(device)
    print(f"{len(cases)} cases on {device}; TAPELINE_LONG=1 runs all that the device can run")
    assert cases
    assert not list(device_failures(cases, sharing(device), tmp_path))


def _gone(limits: Sequence[Limit], device: str, folder: Path) -> list[tuple[str, Limit]]:
    """The limits that are none, each with a case that runs right."""
    gone = []
    for limit in limits:
        cases = limited_cases(limit, device, limits)
        assert cases or device not in limit.devices, f"{limit} matches no case"
        gone += [(case.name, limit) for case in cases if not list(device_failures([case], (device,), folder))]
    return gone


@pytest.mark.parametrize("device", device_params(shared=True))
def test_limits_are_still_there(device: str, tmp_path: Path) -> None:
    """A case that runs right is to leave the table."""
    assert not _gone(LIMITS, device, tmp_path), "these limits are gone, remove them"


@pytest.mark.parametrize("device", device_params(shared=True))
def test_a_limit_that_is_none_is_found(device: str, tmp_path: Path) -> None:
    none = Limit((device,), "test_add", "added to be found")
    elsewhere = Limit(("no such device",), "test_mul", "never asked")
    real = [limit for limit in LIMITS if device in limit.devices][:1]
    assert _gone((none, elsewhere, *real), device, tmp_path) == [("test_add", none)]


@pytest.mark.parametrize("device", device_params(shared=True))
def test_a_limit_of_no_case_is_found(device: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"'test_no_such_case'.* matches no case"):
        _gone((Limit((device,), "test_no_such_case", "added to be found"),), device, tmp_path)
