import base64
import hashlib
import zipfile
from pathlib import Path

import pytest

from tools.bootstrap import wheelmaker


@pytest.fixture
def args(tmp_path: Path) -> list[str]:
    """The arguments that rules_python's py_wheel gives for one module and one console script."""
    (tmp_path / "a.py").write_text("A = 1\n")
    (tmp_path / "license").write_text("As you like.\n")
    (tmp_path / "metadata").write_text("Metadata-Version: 2.1\nName: my-pack\nRequires-Dist: numpy\n")
    (tmp_path / "entry_points").write_text("[console_scripts]\nx = pack.a:A\n")
    (tmp_path / "readme.md").write_text("# Pack\n")
    (tmp_path / "inputs").write_text(f"src/pack/a.py;{tmp_path / 'a.py'}\nother/b.py;{tmp_path / 'a.py'}\n\n")
    flags = {
        "name": "my-pack",
        "version": "1.2",
        "python_tag": "py3",
        "abi": "none",
        "platform": "any",
        "out": tmp_path / "my_pack-1.2-py3-none-any.whl",
        "name_file": tmp_path / "name",
        "metadata_file": tmp_path / "metadata",
        "entry_points_file": tmp_path / "entry_points",
        "description_file": tmp_path / "readme.md",
        "input_file_list": tmp_path / "inputs",
        "strip_path_prefix": "src/",
        "extra_distinfo_file": f"LICENSE;{tmp_path / 'license'}",
    }
    return [item for flag, value in flags.items() for item in (f"--{flag}", str(value))]


def test_a_wheel_has_its_files_and_metadata(args: list[str], tmp_path: Path) -> None:
    wheelmaker.main(args)
    with zipfile.ZipFile(tmp_path / "my_pack-1.2-py3-none-any.whl") as wheel:
        info = "my_pack-1.2.dist-info"
        assert wheel.namelist() == [
            "other/b.py",
            "pack/a.py",
            f"{info}/WHEEL",
            f"{info}/METADATA",
            f"{info}/entry_points.txt",
            f"{info}/LICENSE",
            f"{info}/RECORD",
        ]
        assert wheel.read("pack/a.py") == b"A = 1\n"
        assert b"Root-Is-Purelib: true\nTag: py3-none-any\n" in wheel.read(f"{info}/WHEEL")
        assert wheel.read(f"{info}/METADATA").decode() == (
            "Metadata-Version: 2.1\nName: my-pack\nRequires-Dist: numpy\nVersion: 1.2\n"
            "Description-Content-Type: text/markdown\n\n# Pack\n"
        )
    assert (tmp_path / "name").read_text() == "my_pack-1.2-py3-none-any.whl"


def test_record_has_the_digest_of_every_file(args: list[str], tmp_path: Path) -> None:
    wheelmaker.main(args)
    with zipfile.ZipFile(tmp_path / "my_pack-1.2-py3-none-any.whl") as wheel:
        *lines, own = wheel.read("my_pack-1.2.dist-info/RECORD").decode().splitlines()
        assert own == "my_pack-1.2.dist-info/RECORD,,"
        for line in lines:
            name, digest, size = line.split(",")
            data = wheel.read(name)
            expected = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            assert (digest, int(size)) == ("sha256=" + expected, len(data))
        assert {line.split(",")[0] for line in lines} == set(wheel.namelist()) - {own.rstrip(",")}


def test_the_same_input_gives_the_same_bytes(args: list[str], tmp_path: Path) -> None:
    wheel = tmp_path / "my_pack-1.2-py3-none-any.whl"
    wheelmaker.main(args)
    first = wheel.read_bytes()
    wheelmaker.main(args)
    assert wheel.read_bytes() == first


def test_arguments_may_come_from_a_file(args: list[str], tmp_path: Path) -> None:
    (tmp_path / "args").write_text("\n".join(args))
    wheelmaker.main([f"@{tmp_path / 'args'}"])
    assert (tmp_path / "my_pack-1.2-py3-none-any.whl").exists()


@pytest.mark.parametrize(("segment", "escaped"), [("a-b", "a_b"), ("1.2+local", "1.2+local"), ("x  y", "x_y")])
def test_escape(segment: str, escaped: str) -> None:
    assert wheelmaker.escape(segment) == escaped
