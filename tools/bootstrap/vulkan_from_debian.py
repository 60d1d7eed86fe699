#!/usr/bin/env python3
"""Unpacks Mesa's Vulkan driver for the CPU from Debian packages, for machines without a driver and without root.

build_defs/devices.bzl calls it as

    PYTHONPATH=ROOT python3 -m tools.bootstrap.vulkan_from_debian --prefix DIR

The packages are those of the Debian release that this machine runs, so that they fit its C library: the driver, the
Vulkan loader, and the libraries they need that the machine lacks. Nothing outside of DIR is written. A process finds
the driver by the variables in DIR/environment, one NAME=VALUE per line. Two of these at once are safe.
"""

import argparse
import json
import platform
import re
import sys
from collections.abc import Container
from pathlib import Path

from tools.bootstrap.debian import Apt, InstallError, install, run, unpack

ENVIRONMENT = "environment"
_ROOTS = ["libvulkan1", "mesa-vulkan-drivers"]
# The C library is the host's own.
_FOLLOW = re.compile(r"(?!libc6|libc-bin|libgcc-s1$)(lib.*|zlib1g|mesa-.*)")
_MANIFESTS = "usr/share/vulkan/icd.d"
_LIBRARIES = ("usr/lib", "lib")


def installed(listing: str) -> set[str]:
    """Reads the names of installed packages from lines of `status package`, as ``dpkg-query`` prints them."""
    return {name for status, _, name in (line.partition(" ") for line in listing.splitlines()) if status == "installed"}


def point_manifest(root: Path, final: Path) -> Path:
    """Writes ``root``/lvp_icd.json, which tells the Vulkan loader where the driver is; returns its final path."""
    manifest = next(iter(sorted((root / _MANIFESTS).glob("lvp_icd*.json"))), None)
    if manifest is None:
        raise InstallError(f"mesa-vulkan-drivers has no lvp_icd*.json in /{_MANIFESTS}")
    content = json.loads(manifest.read_text())
    name = Path(content["ICD"]["library_path"]).name
    library = next((path for folder in _LIBRARIES for path in (root / folder).rglob(name)), None)
    if library is None:
        raise InstallError(f"mesa-vulkan-drivers has no {name}")
    content["ICD"]["library_path"] = str(final / library.relative_to(root))
    (root / "lvp_icd.json").write_text(json.dumps(content, indent=4) + "\n")
    return final / "lvp_icd.json"


def environment(root: Path, final: Path) -> dict[str, str]:
    """Returns the variables by which a process finds loader and driver once ``root`` has become ``final``."""
    manifest = str(point_manifest(root, final))
    folders = {path.parent for folder in _LIBRARIES for path in (root / folder).rglob("*.so.*")}
    paths = sorted(str(final / folder.relative_to(root)) for folder in folders)
    # Loaders before 1.3.207 know the second name only.
    return {"VK_DRIVER_FILES": manifest, "VK_ICD_FILENAMES": manifest, "LD_LIBRARY_PATH": ":".join(paths)}


def unpack_driver(root: Path, final: Path, present: Container[str]) -> None:
    """Fills ``root`` with the driver, so that it works once it is named ``final``; ``present`` is not unpacked."""
    suite = platform.freedesktop_os_release().get("VERSION_CODENAME")
    if suite is None:
        raise InstallError("/etc/os-release names no Debian release (VERSION_CODENAME)")
    apt = Apt(root.parent / "apt", suite)
    apt.update()
    unpack(apt, apt.closure(_ROOTS, _FOLLOW, present), root)
    lines = [f"{name}={value}\n" for name, value in environment(root, final).items()]
    (root / ENVIRONMENT).write_text("".join(lines))


def main(argv: list[str]) -> int:
    """Unpacks as the flags say; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prefix", type=Path, required=True, help="the folder to make")
    final = parser.parse_args(argv).prefix.absolute()
    try:
        present = installed(run("dpkg-query", "--show", "--showformat=${db:Status-Status} ${Package}\\n"))
        install(final, lambda root: unpack_driver(root, final, present))
    except (InstallError, OSError) as error:
        print(f"Debian's Vulkan driver could not be unpacked: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
