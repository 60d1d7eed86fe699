"""Wheels depend on their sources alone: not on the folder, the time, the user's umask or the machine's settings."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from tests.layering._layers import LAYERS
from tests.wheels._rebuilt import rebuilt
from tests.wheels._wheels import wheel_path


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("package", sorted(LAYERS))
def test_two_builds_give_the_same_bytes(package: str, tmp_path: Path) -> None:
    first = rebuilt(package, tmp_path / "here", umask=0o022, time=1_000_000_000, turned=False, TZ="UTC")
    other = {"TZ": "Asia/Tokyo", "LC_ALL": "C", "PYTHONHASHSEED": "7", "SOURCE_DATE_EPOCH": "1700000000"}
    second = rebuilt(package, tmp_path / "and" / "there", umask=0o077, time=1_700_000_001, turned=True, **other)
    assert _sha256(first) == _sha256(second)
    with zipfile.ZipFile(wheel_path(package)) as wheel:
        names = wheel.namelist()
        (generator,) = (wheel.read(name) for name in names if name.endswith(".dist-info/WHEEL"))
    if b"Generator: wheelmaker\n" in generator:  # Bazel ran ours, not that of a rules_python from elsewhere
        assert _sha256(first) == _sha256(wheel_path(package))


@pytest.mark.parametrize("package", sorted(LAYERS))
def test_a_wheel_names_no_time_and_no_folder(package: str) -> None:
    with zipfile.ZipFile(wheel_path(package)) as wheel:
        assert {item.date_time for item in wheel.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert len({item.external_attr for item in wheel.infolist()}) == 1
        assert not [item.filename for item in wheel.infolist() if item.filename.startswith("/")]
