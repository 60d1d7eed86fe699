"""bazelw takes the first Bazel that works, and says what to do where there is none."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).absolute().parents[2]
# What the script itself calls; everything else on its PATH is made up by a test.
COREUTILS = ("cat", "cut", "dirname", "sha256sum", "sh")


class Machine:
    """A checkout, a PATH and a home of its own."""

    def __init__(self, folder: Path) -> None:
        self.checkout, self.bin, self.home = folder / "checkout", folder / "bin", folder / "home"
        for path in (
            "bazelw",
            ".bazelversion",
            "tools/bootstrap/bazel_from_debian.py",
            "tools/bootstrap/debian.py",
            "tools/bootstrap/wheelmaker.py",
        ):
            (self.checkout / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, self.checkout / path)
        self.bin.mkdir()
        self.home.mkdir()
        for name in COREUTILS:
            program = shutil.which(name)
            assert program
            (self.bin / name).symlink_to(program)

    def add(self, name: str, script: str) -> None:
        """Puts a program on PATH."""
        program = self.bin / name
        program.write_text("#!/bin/sh\n" + script)
        program.chmod(0o755)

    def bazelw(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Runs the checkout's bazelw."""
        env = {"PATH": str(self.bin), "HOME": str(self.home)}
        return subprocess.run(
            [self.checkout / "bazelw", *args], env=env, cwd=self.checkout, text=True, capture_output=True, check=False
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def bazel(name: str, version: str = "bazel 7.7.1") -> str:
    """A program that answers like Bazel."""
    return f'if [ "$1" = --version ]; then echo "{version}"; else echo "{name} ran: $*"; fi\n'


# Stands for the installer: makes the launcher at the prefix that it is given.
INSTALL = """
[ "$1 $2 $3" = "-m tools.bootstrap.bazel_from_debian --prefix" ] || exit 9
mkdir -p "$4" && printf '#!/bin/sh\\necho "debian ran: $*"\\n' > "$4/bazel" && chmod +x "$4/bazel"
"""


def test_bazelisk_comes_first_and_gets_the_arguments(machine: Machine) -> None:
    machine.add("bazelisk", bazel("bazelisk"))
    machine.add("bazel", bazel("bazel"))
    done = machine.bazelw("test", "//...", "--x=a b")
    assert (done.returncode, done.stdout) == (0, "bazelisk ran: test //... --x=a b\n")


@pytest.mark.parametrize("broken", ["exit 1\n", bazel("bazelisk", "bazel 9.0.0"), bazel("bazelisk", "go 1.22")])
def test_a_program_that_does_not_work_is_passed_over(machine: Machine, broken: str) -> None:
    machine.add("bazelisk", broken)
    machine.add("bazel", bazel("bazel"))
    assert machine.bazelw("info").stdout == "bazel ran: info\n"


def test_without_any_it_is_installed_into_the_cache_once(machine: Machine) -> None:
    machine.add("apt-get", "exit 0\n")
    machine.add("python3", f"echo installing\n{INSTALL}")
    for name in ("mkdir", "chmod"):
        (machine.bin / name).symlink_to(str(shutil.which(name)))
    first, second = machine.bazelw("info"), machine.bazelw("info")
    assert first.stdout == second.stdout == "debian ran: info\n"
    assert "installing" in first.stderr
    assert "installing" not in second.stderr
    (prefix,) = (machine.home / ".cache/tapeline").iterdir()
    assert prefix.name.startswith("bazel-")


def test_an_edited_installer_installs_anew(machine: Machine) -> None:
    machine.add("apt-get", "exit 0\n")
    machine.add("python3", INSTALL)
    for name in ("mkdir", "chmod"):
        (machine.bin / name).symlink_to(str(shutil.which(name)))
    machine.bazelw("info")
    with (machine.checkout / "tools/bootstrap/wheelmaker.py").open("a") as file:
        file.write("# changed\n")
    machine.bazelw("info")
    assert len(list((machine.home / ".cache/tapeline").iterdir())) == 2


@pytest.mark.parametrize(
    ("programs", "reason"),
    [
        ({}, "this machine has no apt-get"),
        ({"apt-get": "exit 0\n"}, "this machine has no python3"),
        ({"apt-get": "exit 0\n", "python3": "exit 1\n"}, "the attempt above failed"),
    ],
)
def test_where_nothing_works_it_says_what_to_do(machine: Machine, programs: dict[str, str], reason: str) -> None:
    for name, script in programs.items():
        machine.add(name, script)
    done = machine.bazelw("info")
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"none can be installed from Debian: {reason}." in done.stderr
    assert "Download Bazelisk" in done.stderr
