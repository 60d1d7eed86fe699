"""Environments without Bazel that have our wheels, for tests."""

import importlib.metadata
import os
import re
import subprocess
import sys
import venv
from collections.abc import Collection, Sequence
from pathlib import Path
from types import ModuleType

import pip

from lang_core import EXTRAS
from tests.layering._layers import LAYERS
from tests.wheels._wheels import metadata_of, wheel_path

OWN_PACKAGES = list(LAYERS)

# Requirements of the compiler that WORKSPACE leaves out, for nothing imports them.
_LEFT_OUT = frozenset({"mpmath", "sympy"})


def run(*command: str | Path, cwd: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
    """Runs a program with nothing of Bazel's in its environment."""
    env = {"PATH": os.environ["PATH"], "HOME": os.environ["TEST_TMPDIR"], **environ}
    return subprocess.run([str(c) for c in command], env=env, cwd=cwd, text=True, capture_output=True, check=False)


def site_of(package: ModuleType) -> str:
    """The folder that a package of the lock is imported from."""
    return str(Path(str(package.__file__)).parents[1])


def sites_of(*names: str) -> set[str]:
    """The folders of distributions of the lock, and of all that they require everywhere."""
    sites: dict[str, str] = {}
    left = list(names)
    while left:
        name = left.pop()
        if name not in sites and name not in _LEFT_OUT:
            distribution = importlib.metadata.distribution(name)
            sites[name] = str(distribution.locate_file(""))
            left += [re.split(r"[^\w.-]", line)[0] for line in distribution.requires or [] if ";" not in line]
    return set(sites.values())


def requirements(packages: Sequence[str], extras: Collection[str]) -> set[str]:
    """Returns the distributions that wheels of ours require, with these extras of each."""
    lines = [line for package in packages for line in metadata_of(package).get_all("Requires-Dist", [])]
    ends = tuple(f"extra == '{extra}'" for extra in extras)
    return {re.split(r"[^\w.-]", line)[0] for line in lines if "extra ==" not in line or line.endswith(ends)}


def environment(
    folder: Path, packages: Sequence[str], others: Sequence[str] = (), *, extras: Collection[str] = EXTRAS
) -> Path:
    """Makes an environment with wheels of ours; returns its interpreter.

    Args:
        folder: the environment's.
        packages: of ours; what they require comes along.
        others: further packages of the lock.
        extras: extras of each wheel, all of them by default.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin/python"
    (site,) = (folder / "lib").glob("python3.*/site-packages")
    required = requirements(packages, extras)
    (site / "third_party.pth").write_text(
        "".join(f"{site}\n" for site in sites_of(*required - set(OWN_PACKAGES), *others))
    )
    install(python, *(wheel_path(package) for package in packages))
    done = run(*_pip(python), "check", PYTHONPATH=site_of(pip))
    # Some requirements of other packages are not for this platform, and the lock leaves some out.
    ours = [line for line in done.stdout.splitlines() if line.split()[0].replace("-", "_") in OWN_PACKAGES]
    assert not ours, done.stdout + done.stderr
    return python


def install(python: Path, *sources: Path) -> None:
    """Installs wheels or projects into an environment; projects are built by what is there."""
    flags = ("--no-index", "--no-deps", "--no-build-isolation")
    done = run(*_pip(python), "install", *flags, *sources, PYTHONPATH=site_of(pip))
    assert done.returncode == 0, done.stdout + done.stderr


def _pip(python: Path) -> list[str | Path]:
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
