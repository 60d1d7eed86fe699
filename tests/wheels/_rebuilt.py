"""Builds a wheel again from what is in it, elsewhere: in another folder, at another time, by another user."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

from tests.wheels._wheels import metadata_of, wheel_path

_ROOT: Final = Path(__file__).absolute().parents[2]
_WHEELMAKER: Final = "tools.bootstrap.wheelmaker"


def rebuilt(package: str, folder: Path, *, umask: int, time: int, turned: bool, **environ: str) -> Path:
    """Builds a package's wheel from unpacked sources by the program that Bazel runs, and returns its path.

    Args:
        package: of ours.
        folder: a new folder.
        umask: of the process that unpacks and builds.
        time: in seconds since 1970, of every source's last change.
        turned: whether the sources are listed from the last to the first.
        environ: added to the environment.
    """
    sources = folder / "sources"
    with zipfile.ZipFile(wheel_path(package)) as wheel:
        names = [name for name in wheel.namelist() if ".dist-info/" not in name]
        before = os.umask(umask)
        try:
            wheel.extractall(sources)
        finally:
            os.umask(before)
    for path in sources.rglob("*"):
        os.utime(path, (time, time))
    return _made(package, folder, sorted(names, reverse=turned), umask, environ)


def _made(package: str, folder: Path, names: list[str], umask: int, environ: dict[str, str]) -> Path:
    metadata = metadata_of(package)
    lines = [f"{name}: {value}" for name, value in metadata.items() if not name.startswith(("Version", "Description-"))]
    (folder / "metadata").write_text("".join(f"{line}\n" for line in lines))
    (folder / "inputs").write_text("".join(f"{name};{folder / 'sources' / name}\n" for name in names))
    made = folder / wheel_path(package).name
    flags = {
        "name": package,
        "version": metadata["Version"],
        "python_tag": "py3",
        "abi": "none",
        "platform": "any",
        "out": made,
        "metadata_file": folder / "metadata",
        "input_file_list": folder / "inputs",
        **_others(package, folder),
    }
    subprocess.run(
        [sys.executable, "-m", _WHEELMAKER, *(f"--{flag}={value}" for flag, value in flags.items())],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(_ROOT), **environ},
        umask=umask,
        check=True,
    )
    return made


def _others(package: str, folder: Path) -> dict[str, Path]:
    """Writes the files that some wheels alone have, and returns their flags."""
    flags = {}
    with zipfile.ZipFile(wheel_path(package)) as wheel:
        for name in wheel.namelist():
            if name.endswith(".dist-info/entry_points.txt"):
                flags["entry_points_file"] = folder / "entry_points.txt"
                flags["entry_points_file"].write_bytes(wheel.read(name))
    text = metadata_of(package).get_payload()
    if text:
        flags["description_file"] = folder / "description.md"
        flags["description_file"].write_text(str(text))
    return flags
