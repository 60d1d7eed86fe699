"""Wheels in an empty environment without Bazel: two for a team that wants the models, all of them for the product."""

from pathlib import Path

import pytest

from tests.wheels._environments import OWN_PACKAGES, environment, run
from tests.wheels._wheels import metadata_of

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


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a new environment: lang_core, transformer_core, and what these require."""
    return environment(tmp_path_factory.mktemp("models"), ["lang_core", "transformer_core"])


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of a new environment with every wheel."""
    return environment(tmp_path_factory.mktemp("product"), OWN_PACKAGES).parent


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


def test_the_command_exports_and_the_command_and_python_generate(product: Path, tmp_path: Path) -> None:
    sizes = ("--sequence=8", "--max_sequence=40")
    done = run(product / "tapeline", "export", *sizes, "--output=demo", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "demo\n"), done.stderr
    prompt = "It was the best of times,"
    flags = ("--bundle=demo", f"--prompt={prompt}", "--max_new_tokens=12")
    done = run(product / "tapeline", "generate", *flags, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(" it was the worst")
    code = (
        "import tapeline, sys\n"
        "with tapeline.load('demo') as model:\n"
        "    print(model.generate(sys.argv[1], max_new_tokens=12).text)\n"
    )
    called = run(product / "python", "-I", "-c", code, prompt, cwd=tmp_path)
    assert (called.returncode, called.stdout) == (0, done.stdout), called.stderr
    code = "import tapeline; print(tapeline.export('demo', 'again', sequence=8, max_sequence=40, verify='none').path)"
    called = run(product / "python", "-I", "-c", code, cwd=tmp_path)
    assert (called.returncode, called.stdout) == (0, "again\n"), called.stderr
    assert (tmp_path / "again/module.mlir").read_bytes() == (tmp_path / "demo/module.mlir").read_bytes()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of a new environment as `pip install tapeline` makes it: without extras."""
    packages = [package for package in OWN_PACKAGES if package != "run_jax"]
    return environment(tmp_path_factory.mktemp("base"), packages, extras=()).parent


def test_without_extras_the_command_exports_and_generates(base: Path, tmp_path: Path) -> None:
    done = run(base / "python", "-I", "-c", "import jaxlib")
    assert "ModuleNotFoundError" in done.stderr, "the environment has the packages of an extra"
    done = run(base / "tapeline", "export", "--sequence=8", "--max_sequence=40", "--output=demo", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "demo\n"), done.stderr
    assert "verified on local-task" in done.stderr
    flags = ("--bundle=demo", "--prompt=It was the best of times,", "--max_new_tokens=12")
    done = run(base / "tapeline", "generate", *flags, cwd=tmp_path)
    assert (done.returncode, done.stdout[:17]) == (0, " it was the worst"), done.stderr
    done = run(base / "tapeline", "generate", *flags, "--backend=jax", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.endswith("pip install 'tapeline[jax]'\n")


@pytest.mark.parametrize(
    ("arguments", "code", "out", "err"),
    [
        (["--version"], 0, "tapeline {version}\n", ""),
        (["generate", "--bundle=nowhere", "--prompt=a"], 2, "", "there is no such directory"),
        (["exprot"], 2, "", "did you mean 'export'?"),
    ],
)
def test_the_command_answers(product: Path, arguments: list[str], code: int, out: str, err: str) -> None:
    done = run(product / "tapeline", *arguments)
    assert (done.returncode, done.stdout) == (code, out.format(version=metadata_of("tapeline")["Version"]))
    assert err in done.stderr


def test_the_long_description_is_the_readme() -> None:
    metadata = metadata_of("tapeline")
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "tapeline.load(bundle)" in str(metadata.get_payload())
