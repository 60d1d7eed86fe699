import errno
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from absl import flags

from lang_core import CheckpointError, CompileError, ConfigError, DeviceError, InputError, VerificationError
from tapeline import cli

_PROGRAM = """
import os, signal, sys
from absl import flags
from tapeline import cli
SIZE = flags.DEFINE_integer("size", 1, "A size.", lower_bound=1)
KIND = flags.DEFINE_enum("kind", "a", ["a", "b"], "A kind.")
def main():
    if SIZE.value == 99:
        sys.stdin.read(1)  # until our reader has gone
    print(f"{SIZE.value} {KIND.value}")
    if SIZE.value == 98:
        os.kill(os.getpid(), signal.SIGINT)
if __name__ == "__main__":
    cli.run(main)
"""


@pytest.fixture
def program(tmp_path: Path) -> list[str]:
    file = tmp_path / "program.py"
    file.write_text(_PROGRAM)
    return [sys.executable, str(file)]


def _run(command: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([*command, *arguments], env=environment, text=True, capture_output=True, check=False)


class _Counted(io.RawIOBase):
    """Stream that keeps each write that reaches it."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self.writes.append(bytes(data))
        return len(data)


def test_an_error_of_several_lines_is_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """With two, a reader that leaves after the first line changes the exit code."""
    stream = _Counted()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BufferedWriter(stream), line_buffering=True))
    cli.say_error("wrong\nsee: elsewhere")
    assert stream.writes == [b"error: wrong\nsee: elsewhere\n"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputError("wrong"), 2),
        (CheckpointError("wrong"), 2),
        (ConfigError("wrong"), 2),
        (VerificationError("wrong"), 3),
        (CompileError("wrong"), 1),
        (DeviceError("wrong"), 1),
        (OSError("wrong"), 1),
        (ZeroDivisionError("wrong"), 1),
        (MemoryError("wrong"), 1),
    ],
)
def test_exit_codes(error: Exception, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    def main() -> None:
        raise error

    assert cli.guarded(main) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines()[-1] == "error: wrong"
    foreseen = code in (2, 3) or isinstance(error, (CompileError, DeviceError))
    assert ("Traceback" in said.err) != foreseen  # what nobody foresaw is for us to mend


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("name", ["weights", None])
def test_files_that_cannot_be_written(code: int, name: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    def main() -> None:
        raise OSError(code, os.strerror(code), *([name] if name else []))

    assert cli.guarded(main) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: cannot write {name or 'a file'}: {os.strerror(code)}: make room")
    assert said.count("\n") == 1


def test_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.guarded(lambda: print("done")) == 0
    assert capsys.readouterr().out == "done\n"


def test_a_program_runs_and_says_what_is_wrong_with_its_flags(program: list[str]) -> None:
    done = _run(program, "--size=3", "--kind", "b")
    assert (done.returncode, done.stdout, done.stderr) == (0, "3 b\n", "")
    wrong = {
        ("--sise=3",): "Unknown command line flag 'sise'. Did you mean: size",
        ("--size=0",): "flag --size=0",
        ("--size=many",): "flag --size=many",
        ("--kind=c",): "value should be one of <a|b>",
        ("stray", "word"): "unexpected arguments stray word: every option is a --flag",
    }
    for arguments, message in wrong.items():
        done = _run(program, *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert message in done.stderr
        assert "Traceback" not in done.stderr
        assert done.stderr.startswith("error: ")


def test_help_is_no_error(program: list[str]) -> None:
    done = _run(program, "--help")
    assert done.returncode == 0
    assert "--size" in done.stdout


def test_a_reader_that_goes_away_ends_the_program_quietly(program: list[str]) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [*program, "--size=99"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdout.close()
    process.stdin.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 1


def test_an_interrupt_is_said_in_a_word(program: list[str]) -> None:
    done = _run(program, "--size=98")
    assert done.returncode == 130
    assert done.stderr == "error: interrupted\n"


def test_paths_are_relative_to_where_the_user_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BUILD_WORKING_DIRECTORY", raising=False)
    assert cli.user_path("a/b") == Path("a/b")
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    assert cli.user_path("a/b") == tmp_path / "a" / "b"
    assert cli.user_path("/a/b") == Path("/a/b")


def test_output_files_are_checked_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli.output_file("stats", None) is None
    assert cli.output_file("stats", str(tmp_path / "s.json")) == tmp_path / "s.json"
    for path in (tmp_path, tmp_path / "nowhere" / "s.json"):
        with pytest.raises(InputError, match=r"stats=.*: no file can be written there: choose another"):
            cli.output_file("stats", str(path))
    (tmp_path / "old.json").write_text("")
    monkeypatch.setattr(os, "access", lambda path, _: path != tmp_path / "old.json")
    assert cli.output_file("stats", str(tmp_path / "s.json"))
    with pytest.raises(InputError, match="no file can be written there"):
        cli.output_file("stats", str(tmp_path / "old.json"))


def test_the_flags_of_the_programs_do_not_leak_into_this_one() -> None:
    assert "bundle" not in flags.FLAGS


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with cli.whole_file(path) as file:
        file.write(b"one")
    path.chmod(0o640)

    def fail() -> None:
        with cli.whole_file(path) as file:
            file.write(b"two")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_bytes() == b"one"
    (tmp_path / "link").symlink_to(path)
    with cli.whole_file(tmp_path / "link") as file:
        file.write(b"three")
    assert (path.read_bytes(), path.stat().st_mode & 0o777, path.is_symlink()) == (b"three", 0o640, False)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a", "link"]
    with cli.whole_file(Path("/dev/null")) as file:
        file.write(b"gone")
    assert Path("/dev/null").is_char_device()
