from pathlib import Path

import pytest

from lang_core import CompileError
from run_iree._device_testing import STEP, chain
from run_iree.compiler._bindings import check_bindings
from run_iree.compiler._targets import target_named


@pytest.mark.parametrize("target", ["llvm-cpu", "vulkan-spirv", "cuda"])
def test_more_tensors_than_any_device_passes(target: str, tmp_path: Path) -> None:
    """Without a device."""
    source = tmp_path / "m.mlir"
    source.write_text(chain(40))
    cap = 16 if target == "cuda" else 32
    message = (
        r"m.mlir' compiles for .*, but no device would load it: the compiler fused a chain of ops into one that takes "
        rf"41 tensors, and the device passes {cap} at most: stack .* \(it is main_dispatch_0"
    )
    with pytest.raises(CompileError, match=message):
        check_bindings(source, target_named(target))


@pytest.mark.parametrize(
    ("text", "target"),
    [(chain(31), "vulkan-spirv"), (chain(15), "cuda"), (STEP, "cuda")],
    ids=["32 tensors", "16 tensors", "a step"],
)
def test_what_devices_load(text: str, target: str, tmp_path: Path) -> None:
    source = tmp_path / "m.mlir"
    source.write_text(text)
    check_bindings(source, target_named(target))


def test_what_does_not_compile(tmp_path: Path) -> None:
    source = tmp_path / "m.mlir"
    source.write_text("module { nonsense }")
    with pytest.raises(CompileError, match=r"cannot count the tensors of .*m.mlir: .*error"):
        check_bindings(source, target_named("cuda"))
