import pytest

from lang_core import CompileError, DeviceError
from run_iree.compiler import _targets
from run_iree.compiler._targets import target_named
from run_iree.devices import DEVICES, TARGETS, CpuRecord, Device, available, host_cpu, target_of_device


def test_every_device_has_a_target_that_names_it() -> None:
    for device in DEVICES:
        assert device in target_named(target_of_device(device), vulkan_target="llvmpipe").devices
    assert {target_of_device(device) for device in DEVICES} == set(TARGETS)


def test_unknown_names_say_what_is_near() -> None:
    with pytest.raises(
        CompileError, match=r"target 'vulkan-spriv' not found; available: .*did you mean 'vulkan-spirv'"
    ):
        target_named("vulkan-spriv")
    with pytest.raises(CompileError, match=r"device 'local-tsk' not found; available: .*did you mean 'local-task'"):
        target_of_device("local-tsk")
    with pytest.raises(DeviceError, match=r"device 'vulcan' not found; available: .*did you mean 'vulkan'"):
        available("vulcan")


def test_an_absent_device_says_why() -> None:
    for name in DEVICES:
        present, reason = available(name)
        assert reason
        if not present:
            with pytest.raises(
                DeviceError, match=f"device '{name}' is not available: driver .*; available: local-task"
            ):
                Device(name)


def test_the_cpu_of_this_machine_is_recorded_for_host_alone() -> None:
    host = target_named("llvm-cpu").cpu
    assert host is not None
    assert host == host_cpu()
    assert host.missing_here() == ()
    assert target_named("llvm-cpu", cpu="generic").cpu == CpuRecord("generic", "generic", ())
    assert target_named("vmvx").cpu is None
    assert CpuRecord("host", "another", ("no_such_feature",)).missing_here() == ("no_such_feature",)


@pytest.mark.parametrize(
    ("device", "target"), [(None, "llvmpipe"), ("llvmpipe (LLVM 15)", "llvmpipe"), ("NVIDIA H200", "ampere")]
)
def test_the_vulkan_target_fits_the_device(monkeypatch: pytest.MonkeyPatch, device: str | None, target: str) -> None:
    monkeypatch.setattr(_targets, "vulkan_device_name", lambda: device)
    assert f"--iree-vulkan-target={target}" in target_named("vulkan-spirv").flags


def test_an_unknown_vulkan_device_needs_a_target_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_targets, "vulkan_device_name", lambda: "Abacus 9")
    with pytest.raises(CompileError, match=r"no Vulkan target is known for the device 'Abacus 9': name one"):
        target_named("vulkan-spirv")
    assert "--iree-vulkan-target=adreno" in target_named("vulkan-spirv", vulkan_target="adreno").flags
