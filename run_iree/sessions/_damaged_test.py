from pathlib import Path

import numpy as np
import pytest

from lang_core import DeviceError, InputError
from run_iree._device_testing import STEP, archive, chain, compiled, device_params
from run_iree.compiler import compile_module
from run_iree.devices import MOST_BINDINGS
from run_iree.sessions._session import Session

_W = np.ones((4, 3), np.float32)


@pytest.fixture(scope="module", params=device_params())
def device(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def module(device: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(STEP, device, tmp_path_factory.mktemp("module"))


def test_a_missing_module(device: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot load the module '.*no\.vmfb': file not found"):
        Session(tmp_path / "no.vmfb", device)


@pytest.mark.parametrize("keep", [0, 8, 64, 0.25, 0.5, 0.9, -100, -1])
def test_a_module_cut_off(device: str, module: Path, tmp_path: Path, keep: float) -> None:
    data = module.read_bytes()
    cut = tmp_path / "cut.vmfb"
    cut.write_bytes(data[: int(keep * len(data)) if 0 < keep < 1 else int(keep)])
    with pytest.raises(InputError, match=r"cut\.vmfb': truncated, or not a \.vmfb .*export again"):
        Session(cut, device, parameters=archive(tmp_path, {"w": _W}))


def test_a_module_of_garbage(device: str, tmp_path: Path) -> None:
    path = tmp_path / "garbage.vmfb"
    path.write_bytes(np.random.default_rng(0).bytes(5000))
    with pytest.raises(InputError, match=r"truncated, or not a \.vmfb"):
        Session(path, device)


@pytest.mark.parametrize("seed", range(16))
def test_a_module_with_changed_bytes(device: str, module: Path, tmp_path: Path, seed: int) -> None:
    data = bytearray(module.read_bytes())
    rng = np.random.default_rng(seed)
    at = int(rng.integers(200, len(data) - 400))  # the parts lie before the ZIP file's directory
    data[at] ^= int(rng.integers(1, 256))
    path = tmp_path / "changed.vmfb"
    path.write_bytes(data)
    try:
        with Session(path, device, parameters=archive(tmp_path, {"w": _W})) as session:  # the padding between parts
            y, _ = session.function("main")(0, np.ones((2, 3), np.float32), np.zeros((1, 5, 3), np.float32))
            assert y.numpy()[0, 0] == 3
    except InputError as error:
        assert "damaged" in str(error) or "truncated" in str(error)  # noqa: PT017


def test_no_archive_for_a_module_that_needs_one(device: str, module: Path) -> None:
    with pytest.raises(InputError, match=r"with no parameter archive: .*io_parameters"):
        Session(module, device)


def test_a_missing_archive(device: str, module: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot load the parameters '.*no\.irpa': file not found"):
        Session(module, device, parameters=tmp_path / "no.irpa")


@pytest.mark.parametrize("keep", [0, 40, 0.3, 0.6])
def test_an_archive_cut_off(device: str, module: Path, tmp_path: Path, keep: float) -> None:
    whole = archive(tmp_path, {"a": np.ones(9000, np.float32), "w": _W}).read_bytes()
    cut = tmp_path / "cut.irpa"
    cut.write_bytes(whole[: int(keep * len(whole)) if 0 < keep < 1 else int(keep)])
    with pytest.raises(InputError, match=r"cannot load the parameters '.*cut\.irpa': truncated, or not an archive"):
        Session(module, device, parameters=cut)


def test_an_archive_that_lacks_a_parameter(device: str, module: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no parameter found in index with key 'w'"):
        Session(module, device, parameters=archive(tmp_path, {"v": _W}))


def test_an_archive_with_too_small_a_parameter(device: str, module: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="parameter `w` range out of bounds"):
        Session(module, device, parameters=archive(tmp_path, {"w": _W[:2]}))


def test_another_scope(device: str, module: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"scope 'other': .*no provider registered that handles scopes like 'model'"):
        Session(module, device, parameters=archive(tmp_path, {"w": _W}), scope="other")


def test_a_module_for_another_device(device: str, tmp_path: Path) -> None:
    source = tmp_path / "m.mlir"
    source.write_text(STEP)
    compile_module(source, tmp_path / "m.vmfb", "vulkan-spirv" if device != "vulkan" else "vmvx")
    with pytest.raises(DeviceError, match=f"cannot load '.*m.vmfb' on {device} with parameters .*: .*HAL device"):
        Session(tmp_path / "m.vmfb", device, parameters=archive(tmp_path, {"w": _W}))


def test_more_tensors_than_a_device_passes_to_one_op(device: str, tmp_path: Path) -> None:
    """IREE 3.13 fuses the chain whole, and refuses it when the module is loaded."""
    module = compiled(chain(40), device, tmp_path)
    cap = MOST_BINDINGS[device]
    with pytest.raises(
        DeviceError, match=f"into one that takes 41 tensors, and the device passes {cap} at most: stack"
    ):
        Session(module, device)
