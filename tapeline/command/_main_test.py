import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from tapeline.cli import VERSION
from tapeline.command import COMMANDS, load_command, main
from tapeline.command._flags import as_flags
from tapeline.exporting import ExportOptions


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
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"tapeline {VERSION}\n"


def test_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exprot", "--model=demo"]) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err.startswith("error: unknown command 'exprot': the commands are export, generate, chat, ")
    assert streams.err.endswith("; did you mean 'export'?\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for given in (["--help"], ["--device=vmvx", "--help"], ["-h"]):
        assert main([name, *given]) == 0
        streams = capsys.readouterr()
        assert streams.err == ""
        assert "\nFlags:\n" in streams.out
        command = load_command(name)
        for flag in command.FLAGS:
            assert f"--{flag}:" in streams.out or f"--[no]{flag}:" in streams.out


def test_a_command_starts_from_its_defaults_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "--bundle=nowhere", "--prompt=a", "--prompt=b", "--seed=7"]) == 2
    assert main(["generate", "--bundle=nowhere", "--prompt=c"]) == 2
    values = load_command("generate").FLAGS
    assert (values["prompt"].value, values["seed"].value) == (["c"], 0)
    assert main(["generate", "--prompt=c"]) == 2
    assert "error: give either --bundle or --model" in capsys.readouterr().err


def test_unexpected_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "stray", "word"]) == 2
    assert "error: unexpected arguments stray word: every option is a --flag\n" in capsys.readouterr().err


def test_a_lone_argument_is_a_bundle_or_a_model(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "kernel_config.json").touch()
    for command in ("inspect", "chat"):
        for argument, flag in {"dir": "bundle", "model.gguf": "model", "demo": "model"}.items():
            assert main([command, argument]) == 2
            hint = f"unexpected arguments {argument}: every option is a --flag; did you mean --{flag}={argument}?"
            assert f"error: {hint}\n" in capsys.readouterr().err


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


def test_the_command_starts_without_engines() -> None:
    code = "import sys, tapeline.command; print([m for m in ('jax', 'iree.runtime', 'numpy') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], text=True, capture_output=True, check=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert done.stdout in ("[]\n", "['numpy']\n")


def test_the_flags_of_export_are_its_options() -> None:
    fields = {field.name for field in dataclasses.fields(ExportOptions)}
    assert set(load_command("export").FLAGS) == fields | {"dry_run", "hardware", "format"}
