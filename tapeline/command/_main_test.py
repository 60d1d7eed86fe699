import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from absl import flags

from tapeline.cli import VERSION
from tapeline.command import COMMANDS, _program, load_command, main
from tapeline.command._flags import as_flags, shown_flags
from tapeline.command._program import _with_flags
from tapeline.exporting import RARE, ExportOptions, option_texts


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for name, line in COMMANDS.items():
        assert f"  {name} " in out
        assert line in out


def test_without_a_command_the_overview_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert "usage: tapeline COMMAND" in streams.err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    for word in ("--version", "-V", "version"):
        assert main([word]) == 0
        assert capsys.readouterr().out == f"tapeline {VERSION}\n"


def test_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exprot", "--model=demo"]) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err.startswith("error: unknown command 'exprot': expected one of export, ")
    assert streams.err.endswith(" in all); did you mean 'export'?\ntapeline --help lists the commands.\n")
    assert len(streams.err) < 200


def _may_be_repeated(command: str, flag: str) -> bool:
    return isinstance(load_command(command).FLAGS[flag], flags.MultiFlag)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for given in (["--help"], ["--device=vmvx", "--help"], ["-h"]):
        assert main([name, *given]) == 0
        streams = capsys.readouterr()
        assert streams.err == ""
        assert not re.search(r"repeat this option|'\[\]'|tools:\w|[.,;];", streams.out)
        multiples = [flag.name for flag in shown_flags(load_command(name).FLAGS) if _may_be_repeated(name, flag.name)]
        assert streams.out.count("(may be repeated)") == len(multiples)
        assert "\nFlags:\n" in streams.out
        shown = {flag.name for flag in shown_flags(load_command(name).FLAGS)}
        assert set(re.findall(r"^  --(?:\[no\])?(\w+):", streams.out, re.MULTILINE)) == shown


def test_a_command_starts_from_its_defaults_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "--bundle=nowhere", "--prompt=a", "--prompt=b", "--seed=7"]) == 2
    assert main(["generate", "--bundle=nowhere", "--prompt=c"]) == 2
    values = load_command("generate").FLAGS
    assert (values["prompt"].value, values["seed"].value) == (["c"], 0)
    assert main(["generate", "--prompt=c"]) == 2
    assert "error: give either --bundle or --model" in capsys.readouterr().err


def test_unexpected_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in {
        ("export", "model", "stray", "word"): "unexpected arguments stray word: every option is a --flag\n",
        ("doctor", "stray"): "unexpected arguments stray: every option is a --flag\n",
        ("inspect", "demo", "--hashes", "false"): "give true or false with =, such as --flag=false\n",
        ("generate", "demo", "Once"): "give a text with --prompt='...'\n",
        ("embed", "bundle", "Once"): "give a text with --text='...'\n",
        ("rerank", "bundle", "Once"): "give a text with --document='...'\n",
    }.items():
        assert main(words) == 2
        assert message in capsys.readouterr().err


def test_help_of_a_command_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "chat"]) == 0
    text = capsys.readouterr().out
    assert main(["chat", "demo", "-h"]) == 0
    assert capsys.readouterr().out == text
    assert "usage: tapeline chat [MODEL|BUNDLE] [--flag=value ...]" in text


def _started(words: Sequence[str], out: int, err: int | None = None) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("PYTHONUNBUFFERED", None)  # so that Python still has text to write when it ends
    return subprocess.Popen([sys.executable, "-m", "tapeline", *words], env=environment, stdout=out, stderr=err)


def _without_reader(words: Sequence[str]) -> tuple[int, bytes]:
    """Returns the exit code of a program whose stdout nobody reads, and what it wrote to stderr."""
    reader, writer = os.pipe()
    os.close(reader)
    with _started(words, writer, subprocess.PIPE) as process:
        os.close(writer)
        _, err = process.communicate()
    return process.returncode, err


@pytest.mark.parametrize(
    "words",
    [["--help"], ["--version"], ["export", "--help"], ["explain"], ["cache", "list", "--json"], ["completion", "bash"]],
)
def test_a_reader_that_has_gone_ends_a_command_quietly(words: Sequence[str]) -> None:
    assert _without_reader(words) == (1, b"")


def test_an_error_nobody_reads_is_no_second_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with _started(["export", "--model=nowhere"], subprocess.PIPE, writer) as process:
        os.close(writer)
        out, _ = process.communicate()
    assert (process.returncode, out) == (1, b"")


def test_stdout_that_is_closed_or_full(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = f"{sys.executable} -m tapeline --version"
    for redirection, code, err in (
        (">&-", 0, ""),
        ("> /dev/full", 2, "error: stdout cannot be written: No space left"),
    ):
        done = subprocess.run(
            ["sh", "-c", f"{command} {redirection}"],
            env={name: value for name, value in environment.items() if name != "PYTHONUNBUFFERED"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (code, "")
        assert done.stderr.startswith(err)
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("export with max_sequence=64 or more", "export with --max_sequence=64 or more"),
        ("a smaller `batch` or `sequence`", "a smaller --batch or --sequence"),
        ("`batch=2` is too much", "--batch=2 is too much"),
        (
            "batch is an axis, 'batch=2' a text, /a/batch=2 a file",
            "batch is an axis, 'batch=2' a text, /a/batch=2 a file",
        ),
        ("max_batch=2 and `unknown`", "max_batch=2 and `unknown`"),
        ("batch=sequence=ids.npy", "--batch=sequence=ids.npy"),
    ],
)
def test_options_in_messages_become_flags(message: str, expected: str) -> None:
    assert as_flags(message, ["batch", "sequence", "max_sequence"]) == expected


def test_a_line_that_names_no_option_needs_no_other_command(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = load_command("cache")
    assert (
        _with_flags(cache, "`max_sequence`: smaller, and `name=modules`")
        == "--max_sequence: smaller, and --name=modules"
    )
    monkeypatch.setattr(_program, "load_command", lambda name: pytest.fail(f"{name} is imported"))
    assert _with_flags(cache, "kernels: 3 MiB removed") == "kernels: 3 MiB removed"


def test_the_command_starts_without_engines() -> None:
    code = "import sys, tapeline.command; print([m for m in ('jax', 'iree.runtime', 'numpy') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], text=True, capture_output=True, check=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert done.stdout in ("[]\n", "['numpy']\n")


def test_the_flags_of_export_are_its_options() -> None:
    fields = {field.name for field in dataclasses.fields(ExportOptions)}
    flags_of_export = load_command("export").FLAGS
    assert set(flags_of_export) == fields | {"dry_run", "hardware", "format"}
    assert {flag.name for flag in shown_flags(flags_of_export)} == set(flags_of_export) - set(RARE)
    assert set(option_texts()) == fields
    assert all(option_texts().values())


def test_the_former_name_of_a_flag_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "--bundle=nowhere", "--engine=jaks", "--prompt=a"]) == 2
    assert "--backend=jaks: value should be one of <iree|jax|eager" in capsys.readouterr().err
