"""A device test is told its device, and runs only where that device's driver is."""

import glob
import os

import pytest

# Traces of the drivers, of which one at least has to be there; the other devices need none.
DRIVERS = {
    "vulkan": [
        *(f"{folder}/vulkan/icd.d/*.json" for folder in ("/usr/share", "/usr/local/share", "/etc")),
        os.environ.get("VK_DRIVER_FILES", ""),
    ],
    "cuda": ["/dev/nvidia*", "/dev/dxg"],
}


@pytest.fixture
def device() -> str:
    return os.environ["TAPELINE_DEVICE"]


def test_the_device_is_the_one_of_the_target(device: str) -> None:
    assert os.environ["TEST_TARGET"] == f"//build_defs:devices_test_{device.replace('-', '_')}"


def test_its_driver_is_there(device: str) -> None:
    patterns = DRIVERS.get(device, ["/"])
    assert any(glob.glob(pattern) for pattern in patterns)
