"""Compiled modules that test targets share: a module is compiled once on a machine."""

import subprocess
import sys
from pathlib import Path

from build_defs import pytest_main
from run_iree import CompileReport

# The report of a compilation has its seconds, which no other compilation has.
SOURCE = """\
from run_iree import compile_module

def test_it(tmp_path):
    main = "func.func public @main(%x: tensor<SIZExf32>) -> tensor<SIZExf32> { return %x : tensor<SIZExf32> }"
    (tmp_path / "m.mlir").write_text(f"module {{ {main} }}")
    report = compile_module(tmp_path / "m.mlir", tmp_path / "m.vmfb", "vmvx")
    assert (tmp_path / "m.vmfb").stat().st_size == report.vmfb_bytes
    print(f"\\n{report}")
"""


def compiled(folder: Path, size: int, cache: str, name: str = "a_test.py") -> str:
    """Compiles a module of tensors of a size in a test process of its own, and returns the report."""
    source = folder / name
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(SOURCE.replace("SIZE", str(size)))
    command = [sys.executable, "-S", pytest_main.__file__, "-s", name]
    environment = {"PYTHONPATH": ":".join(sys.path), "TAPELINE_TEST_CACHE": str(folder / cache)}
    done = subprocess.run(command, env=environment, cwd=folder, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout
    return next(line for line in done.stdout.splitlines() if line.startswith(f"{CompileReport.__name__}("))


def test_every_process_takes_the_module_that_the_first_compiled(tmp_path: Path) -> None:
    first = compiled(tmp_path, 3, "cache")
    assert compiled(tmp_path, 3, "cache", "b_test.py") == first
    assert compiled(tmp_path, 4, "cache") != first
    assert compiled(tmp_path, 3, "other") != first


def test_the_tests_of_the_compiler_compile(tmp_path: Path) -> None:
    assert len({compiled(tmp_path, 3, "cache", "run_iree/compiler/a_test.py") for _ in range(2)}) == 2


def test_a_folder_that_another_user_can_write_is_not_used(tmp_path: Path) -> None:
    first = compiled(tmp_path, 3, "cache")
    (modules,) = tmp_path.glob("cache/tapeline-tests-*/modules")
    modules.chmod(0o777)
    assert compiled(tmp_path, 3, "cache") != first
    modules.chmod(0o700)
    assert compiled(tmp_path, 3, "cache") == first
