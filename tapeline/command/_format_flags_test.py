import json
from pathlib import Path
from typing import Final

import pytest

import tapeline
from tapeline.command import COMMANDS, load_command, main
from tapeline.finetuning import TrainedModel

_WITHOUT: Final = {
    "serve": "it runs until it is told to end, and prints its address alone",
    "launch": "its output is that of the command that its ranks run, which has the flag",
    "completion": "its result is a script for a shell",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_prints_json_or_says_why_not(name: str) -> None:
    known = load_command(name).FLAGS
    if name in _WITHOUT:
        assert "format" not in known, f"{name} has the flag: take it off the list"
    else:
        assert {"text", "json"} <= set(getattr(known["format"].parser, "enum_values", ()))
        assert known["format"].default == "text"


def test_files_of_a_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["make-checkpoint", f"--output={tmp_path / 'model'}", "--num_layers=1", "--format=json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["output"] == str(tmp_path / "model")
    assert {file["file"]: file["bytes"] for file in document["files"]} == {
        str(path): path.stat().st_size for path in (tmp_path / "model").iterdir()
    }


def test_losses_of_a_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = TrainedModel(tmp_path / "out", [2.5, float("nan")])
    monkeypatch.setattr(tapeline, "train", lambda *_, **__: trained)
    assert main(["train", "--model=demo", "--data=a.txt", "--output=out", "--format=json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == {"output": str(trained.path), "steps": 2, "losses": [2.5, None]}


def test_configurations_that_are_forgotten_and_carried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache, file = tmp_path / "cache.json", tmp_path / "carried.json"
    for action, document in {
        "export": {"written": 0, "file": str(file)},
        "import": {"taken_over": 0, "file": str(file)},
        "clear": {"forgotten": 0, "cache": str(cache)},
    }.items():
        assert main(["tune", action, f"--cache={cache}", f"--file={file}", "--format=json"]) == 0
        assert json.loads(capsys.readouterr().out) == document


def test_an_error_leaves_stdout_empty(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "--bundle=nowhere", "--prompt=a", "--format=json"]) == 2
    assert capsys.readouterr().out == ""
    assert main(["chat", "--bundle=nowhere", "--format=json"]) == 2
    assert "--format=json are of one answer: give --prompt" in capsys.readouterr().err
