"""Opens the wheels that `bazel build //:wheels` makes, from the runfiles of a test."""

import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

_ROOT = Path(__file__).absolute().parents[2]


def wheel_path(package: str) -> Path:
    """The wheel of one top-level package."""
    (path,) = (_ROOT / package).glob(f"{package}-*-py3-none-any.whl")
    return path


def python_files_in(package: str) -> set[str]:
    """The Python files in a package's wheel."""
    with zipfile.ZipFile(wheel_path(package)) as wheel:
        return {name for name in wheel.namelist() if name.endswith(".py")}


def metadata_of(package: str) -> Message:
    """METADATA of a package's wheel."""
    with zipfile.ZipFile(wheel_path(package)) as wheel:
        (name,) = (n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
        return Parser().parsestr(wheel.read(name).decode())
