import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest

from build_defs import pytest_main

PASSING = "def test_it(): pass\n"


def run_main(folder: Path, sources: dict[str, str], **environ: str) -> subprocess.CompletedProcess[str]:
    """Runs pytest_main on test files, in a process of its own with this one's import path."""
    for name, source in sources.items():
        (folder / name).write_text(source)
    command = [sys.executable, "-S", pytest_main.__file__, *(str(folder / name) for name in sources)]
    env = {"PYTHONPATH": ":".join([*sys.path, str(folder)]), **environ}
    return subprocess.run(command, env=env, cwd=folder, text=True, capture_output=True, check=False)


def test_passing_tests_pass(tmp_path: Path) -> None:
    done = run_main(tmp_path, {"a_test.py": PASSING, "b_test.py": PASSING})
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


def test_a_failing_test_fails(tmp_path: Path) -> None:
    assert run_main(tmp_path, {"a_test.py": "def test_it(): assert False\n"}).returncode == 1


def test_a_file_without_a_test_fails_beside_others_that_have_some(tmp_path: Path) -> None:
    done = run_main(tmp_path, {"a_test.py": PASSING, "b_test.py": "def check_it(): pass\n"})
    assert done.returncode == 1
    assert f"No test was collected from {tmp_path / 'b_test.py'}" in done.stderr


def test_a_warning_fails(tmp_path: Path) -> None:
    done = run_main(tmp_path, {"a_test.py": "import warnings\ndef test_it(): warnings.warn('so')\n"})
    assert done.returncode == 1
    assert "UserWarning: so" in done.stdout


def test_a_filter_selects_and_may_select_nothing(tmp_path: Path) -> None:
    source = {"a_test.py": "def test_one(): pass\ndef test_two(): assert False\n"}
    assert run_main(tmp_path, source, TESTBRIDGE_TEST_ONLY="one").returncode == 0
    assert run_main(tmp_path, source, TESTBRIDGE_TEST_ONLY="two").returncode == 1
    assert run_main(tmp_path, source, TESTBRIDGE_TEST_ONLY="three").returncode == 0


@pytest.mark.parametrize("flag", ["--strict-markers", "--import-mode=importlib", "x.py"])
def test_args(flag: str) -> None:
    assert flag in pytest_main.pytest_args(["x.py"], {})


def test_a_folder_may_have_the_name_of_a_package_of_somebody_else(tmp_path: Path) -> None:
    """Although the folder above it has no __init__.py here: Bazel brings those alone that a target names."""
    folder = tmp_path / "ours" / "hypothesis"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    done = run_main(
        tmp_path, {"ours/hypothesis/a_test.py": "import hypothesis\ndef test_it(): hypothesis.settings()\n"}
    )
    assert done.returncode == 0, done.stdout


def test_bazels_report_is_written(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    run_main(tmp_path, {"a_test.py": PASSING}, XML_OUTPUT_FILE=str(report))
    assert 'tests="1"' in report.read_text()


def test_hypothesis_draws_the_same_examples_every_time() -> None:
    """This test itself runs under pytest_main."""
    assert hypothesis.settings().derandomize


def test_mesa_keeps_its_shaders_in_the_tests_own_folder(tmp_path: Path) -> None:
    asked = "import os\ndef test_it(): assert os.environ['MESA_SHADER_CACHE_DIR'] == "
    own, given = (f"{asked}{str(folder)!r}\n" for folder in (tmp_path, "/elsewhere"))
    assert run_main(tmp_path, {"a_test.py": own}, TEST_TMPDIR=str(tmp_path)).returncode == 0
    elsewhere = {"TEST_TMPDIR": str(tmp_path), "MESA_SHADER_CACHE_DIR": "/elsewhere"}
    assert run_main(tmp_path, {"a_test.py": given}, **elsewhere).returncode == 0
