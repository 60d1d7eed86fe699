"""A team that wants only the models installs two wheels into an empty environment, and they work."""

import importlib.metadata
import os
import re
import subprocess
import sys
import venv
from pathlib import Path
from types import ModuleType

import pip
import pytest

from tests.wheels._wheels import wheel_path

# Runs the doctests of every module of the packages named in argv, which also imports all of them.
_RUN_DOCTESTS = """
import doctest, importlib, pkgutil, sys
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    modules = [package]
    modules += [importlib.import_module(m.name) for m in pkgutil.walk_packages(package.__path__, name + ".")]
    results = [doctest.testmod(module) for module in modules]
    assert not any(r.failed for r in results), name
    print(name, package.__file__, sum(r.attempted for r in results))
"""


def run(*command: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Runs a program with nothing of Bazel's in its environment."""
    env = {"PATH": os.environ["PATH"], "HOME": os.environ["TEST_TMPDIR"], **environ}
    return subprocess.run([str(c) for c in command], env=env, text=True, capture_output=True, check=False)


def site_of(package: ModuleType) -> str:
    """The folder that a package of the lock is imported from."""
    return str(Path(str(package.__file__)).parents[1])


def sites_of(*names: str) -> set[str]:
    """The folders of distributions of the lock, and of all that they require everywhere."""
    found: dict[str, str] = {}
    left = list(names)
    while left:
        name = left.pop()
        if name not in found:
            distribution = importlib.metadata.distribution(name)
            found[name] = str(distribution.locate_file(""))
            left += [re.split(r"[^\w.-]", each)[0] for each in distribution.requires or [] if ";" not in each]
    return set(found.values())


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a new environment: lang_core, transformer_core, and what these require."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin/python"
    (site,) = (folder / "lib").glob("python3.*/site-packages")
    (site / "third_party.pth").write_text("".join(f"{site}\n" for site in sites_of("numpy", "ml_dtypes", "gguf")))
    wheels = [wheel_path("lang_core"), wheel_path("transformer_core")]
    run_pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
    done = run(*run_pip, "install", "--no-index", "--no-deps", *wheels, PYTHONPATH=site_of(pip))
    assert done.returncode == 0, done.stdout + done.stderr
    done = run(*run_pip, "check", PYTHONPATH=site_of(pip))
    assert done.returncode == 0, done.stdout + done.stderr
    return python


@pytest.mark.parametrize("package", ["lang_core", "transformer_core"])
def test_its_doctests_run(python: Path, package: str) -> None:
    done = run(python, "-I", "-c", _RUN_DOCTESTS, package)
    assert done.returncode == 0, done.stdout + done.stderr
    name, file, count = done.stdout.split()
    assert name == package
    assert Path(file).is_relative_to(python.parents[1])
    assert int(count) > 0, f"{package} has no doctest"


@pytest.mark.parametrize("package", ["compile_dag", "compile_hlo", "jax", "iree.compiler"])
def test_there_is_no_compiler(python: Path, package: str) -> None:
    done = run(python, "-I", "-c", f"import {package}")
    assert done.returncode == 1
    assert "ModuleNotFoundError" in done.stderr
