from pathlib import Path

import numpy as np
import pytest

from run_iree import _device_testing
from run_iree._device_testing import STEP, compiled, device_params
from run_iree.devices import DEVICES


def _names(shared: bool = False) -> list[str]:
    return [param.values[0] for param in device_params(shared=shared)]  # pyright: ignore[reportAttributeAccessIssue]


def test_the_devices_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAPELINE_DEVICE", raising=False)
    assert _names() == list(DEVICES)
    assert _names(shared=True) == [name for name in DEVICES if name != "local-sync"]
    for asked, alone in (("local-task", False), ("local-sync", True), ("vulkan", True)):
        monkeypatch.setenv("TAPELINE_DEVICE", asked)
        assert _names() == ([asked] if alone else [asked, "local-sync"])
        assert _names(shared=True) == [asked]


def test_a_text_is_compiled_once_for_a_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()

    def compile_module(source: Path, output: Path, target: str) -> None:
        asked.append(target)
        output.write_bytes(np.uint8(len(asked)).tobytes())

    monkeypatch.setattr(_device_testing, "compile_module", compile_module)
    monkeypatch.setattr(_device_testing, "_MADE", {})
    for i, device in enumerate(("local-task", "local-sync", "vmvx", "local-task")):
        folder = tmp_path / str(i)
        folder.mkdir()
        made = compiled(STEP, device, folder)
        assert made == folder / f"m.{device}.vmfb"
        assert made.read_bytes() == bytes([2 if device == "vmvx" else 1])
        assert (folder / "m.mlir").read_text() == STEP
    assert asked == ["llvm-cpu", "vmvx"]
    compiled(f"{STEP} ", "local-task", tmp_path)
    assert len(asked) == 3
