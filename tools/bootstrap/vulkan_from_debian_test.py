import json
from pathlib import Path

import pytest

from tools.bootstrap import vulkan_from_debian as driver
from tools.bootstrap.debian import InstallError

FINAL = Path("/cache/vulkan")


def packages(root: Path, library: str = "usr/lib/x86_64-linux-gnu/libvulkan_lvp.so") -> Path:
    """Makes a folder as the packages unpack."""
    for path in (library, "usr/lib/x86_64-linux-gnu/libLLVM-15.so.1", "lib/x86_64-linux-gnu/libz.so.1"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    manifests = root / "usr/share/vulkan/icd.d"
    manifests.mkdir(parents=True)
    for name in ("lvp_icd.x86_64.json", "intel_icd.x86_64.json"):
        content = {"ICD": {"library_path": f"/usr/lib/x86_64-linux-gnu/libvulkan_{name[:3]}.so"}}
        (manifests / name).write_text(json.dumps(content))
    return root


def test_the_environment_leads_to_the_driver_and_its_libraries(tmp_path: Path) -> None:
    assert driver.environment(packages(tmp_path), FINAL) == {
        "VK_DRIVER_FILES": "/cache/vulkan/lvp_icd.json",
        "VK_ICD_FILENAMES": "/cache/vulkan/lvp_icd.json",
        "LD_LIBRARY_PATH": "/cache/vulkan/lib/x86_64-linux-gnu:/cache/vulkan/usr/lib/x86_64-linux-gnu",
    }
    manifest = json.loads((tmp_path / "lvp_icd.json").read_text())
    assert manifest["ICD"]["library_path"] == "/cache/vulkan/usr/lib/x86_64-linux-gnu/libvulkan_lvp.so"


def test_a_package_without_its_library_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InstallError, match=r"mesa-vulkan-drivers has no libvulkan_lvp\.so"):
        driver.environment(packages(tmp_path, "usr/lib/other.so"), FINAL)


def test_packages_without_a_manifest_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InstallError, match=r"has no lvp_icd\*\.json"):
        driver.environment(tmp_path, FINAL)


def test_packages_that_are_half_installed_are_not_installed() -> None:
    assert driver.installed("installed libdrm2\nhalf-installed libelf1\nconfig-files libz3-4\n") == {"libdrm2"}


@pytest.mark.parametrize(
    ("name", "followed"),
    [
        ("libllvm15", True),
        ("zlib1g", True),
        ("mesa-libgallium", True),
        ("libc6", False),
        ("libgcc-s1", False),
        ("python3", False),
    ],
)
def test_the_c_library_is_the_hosts(name: str, followed: bool) -> None:
    assert bool(driver._FOLLOW.fullmatch(name)) is followed


def test_a_machine_without_dpkg_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert driver.main(["--prefix", str(tmp_path / "vulkan")]) == 1
    assert "Debian's Vulkan driver could not be unpacked" in capsys.readouterr().err
    assert not (tmp_path / "vulkan").exists()
