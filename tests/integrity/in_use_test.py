"""Weights that another process replaces, changes or truncates while they are in use."""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

import tapeline
from lang_core import DeviceError
from tapeline.bundle import ARCHIVE, executable_name

_PROMPT: Final = "It was the best of times,"
_SECONDS: Final = 120  # an answer takes milliseconds
# Answers until it is told to end: one line per answer, and the error that ended it.
_PROGRAM: Final = f"""
import sys
import tapeline
from tapeline.bundle import _checks

folder, engine, leased = sys.argv[1:]
if leased != "yes":
    _checks._lease = lambda file: False
if leased == "unseen":
    _checks._WeightsWatch.check = lambda watch: None
error = ""
try:
    with tapeline.load(folder, engine=engine) as model:
        while True:
            print("answer", model.generate({_PROMPT!r}, max_new_tokens=8).text, flush=True)
            if not sys.stdin.readline().strip():
                break
except tapeline.TapelineError as raised:
    error = f"{{type(raised).__name__}}: {{raised}}"
print("error", error, flush=True)
"""


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("a") / "demo"
    return tapeline.export("demo", folder, sequence=8, max_sequence=32, verify="none").path


@pytest.fixture
def copy(bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bundle, tmp_path / "copy"))


class Running(NamedTuple):
    """Program that answers a prompt for each line that it reads."""

    process: "subprocess.Popen[str]"

    def said(self) -> str:
        """Returns the next line."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def tell(self, text: str) -> None:
        """Asks for another answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()


@pytest.fixture
def started() -> Iterator[Callable[[Path, str, str], Running]]:
    processes: list[subprocess.Popen[str]] = []

    def start(folder: Path, engine: str, leased: str) -> Running:
        paths = os.pathsep.join(path for path in sys.path if path)
        processes.append(
            subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM, str(folder), engine, leased],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": paths},
            )
        )
        return Running(processes[-1])

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def _flip(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-1000, os.SEEK_END)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 64]))


def _copied_over(path: Path) -> None:
    """Truncates the file and writes it again, as cp does."""
    data = path.read_bytes()
    path.write_bytes(data[:4096])


_CHANGES: Final[dict[str, Callable[[Path], object]]] = {
    "truncated": lambda path: os.truncate(path, 0),
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "longer": lambda path: os.truncate(path, path.stat().st_size + 4096),
    "changed": _flip,
    "copied over": _copied_over,
}


@pytest.mark.parametrize("leased", ["yes", "no"])
def test_a_change_in_place_ends_the_next_call(
    leased: str, bundle: Path, tmp_path: Path, started: Callable[[Path, str, str], Running]
) -> None:
    """Never by a signal, and never with another text."""
    running = []
    for number, change in enumerate(_CHANGES):
        copy = Path(shutil.copytree(bundle, tmp_path / f"{number}"))
        running.append((change, copy, started(copy, "iree", leased)))
    for change, copy, program in running:
        expected = program.said()
        assert expected.startswith("answer "), change
        _CHANGES[change](copy / ARCHIVE)
        program.tell("more")
        said = program.said()
        if said.startswith("answer "):  # a changed byte, which is compared in the background
            program.tell("")
            said = program.said()
        assert said.startswith(("error DeviceError: ", "error DescriptionError: ")), f"{change}: {said}"
        assert ARCHIVE in said, change
        assert program.process.wait(_SECONDS) == 0, change


def test_without_a_lease_a_call_reads_nothing_of_a_file_that_is_truncated_meanwhile(
    copy: Path, started: Callable[[Path, str, str], Running]
) -> None:
    """The change falls behind the check before the call, which does not see it here: the weights are in memory."""
    program = started(copy, "iree", "unseen")
    expected = program.said()
    os.truncate(copy / ARCHIVE, 0)
    program.tell("more")
    assert program.said() == expected
    program.tell("")
    assert program.said() == "error "


def test_a_file_that_is_replaced_changes_nothing(
    copy: Path, bundle: Path, started: Callable[[Path, str, str], Running]
) -> None:
    """A rename gives the name to another file; what is mapped stays."""
    program = started(copy, "iree", "yes")
    expected = program.said()
    other = copy / "other"
    other.write_bytes(b"no weights")
    other.rename(copy / ARCHIVE)
    for _ in range(3):
        program.tell("more")
        assert program.said() == expected
    program.tell("")
    assert program.said() == "error "


def test_a_compiled_module_that_is_truncated_changes_nothing(
    copy: Path, started: Callable[[Path, str, str], Running]
) -> None:
    program = started(copy, "iree", "yes")
    expected = program.said()
    os.truncate(copy / executable_name("llvm-cpu"), 0)
    program.tell("more")
    assert program.said() == expected
    program.tell("")
    assert program.said() == "error "


def test_a_writer_waits_until_the_call_has_ended_and_no_longer(copy: Path) -> None:
    """In one process: the writer goes on although the model is not used, and the next call is refused."""
    with (copy / ARCHIVE).open("rb") as file:
        try:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except OSError as error:
            pytest.skip(f"this file system gives no leases ({error})")
    model = tapeline.load(copy)
    assert model.generate(_PROMPT, max_new_tokens=2)
    _flip(copy / ARCHIVE)
    message = r"weights\.irpa was changed while it was in use .* load the bundle again"
    with pytest.raises(DeviceError, match=message):
        model.generate(_PROMPT, max_new_tokens=2)
    with pytest.raises(DeviceError, match=message):
        model.close()


def test_a_closed_model_holds_no_lease(copy: Path) -> None:
    tapeline.load(copy).close()
    with (copy / ARCHIVE).open("r+b", buffering=0) as file:
        assert os.set_blocking(file.fileno(), False) is None
    descriptor = os.open(copy / ARCHIVE, os.O_WRONLY | os.O_NONBLOCK)  # would fail with EWOULDBLOCK under a lease
    os.close(descriptor)
