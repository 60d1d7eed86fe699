"""Flags that name a path are checked before the work: no model is exported or served for a typo."""

import os
from pathlib import Path
from typing import Any

import pytest

import tapeline
from lang_core import InputError
from tapeline.command import _serve, main


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's directory, with a file and a directory that is not empty."""
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("text")
    return tmp_path


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the work that a command began."""
    begun: list[str] = []

    def beginning(name: str) -> Any:
        def begin(*_: Any, **__: Any) -> Any:
            begun.append(name)
            raise InputError("the work began")

        return begin

    monkeypatch.setattr(tapeline, "cached_export", beginning("cached_export"))
    monkeypatch.setattr(tapeline, "load", beginning("load"))
    monkeypatch.setattr(_serve, "serve", beginning("serve"))
    return begun


_GENERATE = {
    "--draft=nowhere": "--draft=nowhere: ",
    "--draft=full": "is not a bundle",
    "--image=nowhere.png": "--image=nowhere.png: cannot be read: No such file or directory",
    "--input=features=nowhere.npy": "--input=features=nowhere.npy: cannot be read: No such file or directory",
    "--prompt_cache=nowhere/file": "--prompt_cache=nowhere/file: no file can be written there",
    "--stats=nowhere/file": "--stats=nowhere/file: no file can be written there",
    "--logits=nowhere/file": "--logits=nowhere/file: no file can be written there",
    "--dump=full": "--dump=full: the directory is not empty",
    "--dump=full/file": "--dump=full/file: it is a file",
}
_SERVE = {
    "--draft=nowhere": "--draft=nowhere: ",
    "--draft=full": "is not a bundle",
    "--api_key_file=nowhere": "--api_key_file=nowhere: cannot be read",
    "--chat_template=nowhere": "--chat_template=nowhere: cannot be read",
    "--certificate=nowhere": "--certificate=nowhere: cannot be read",
    "--certificate_key=nowhere": "--certificate_key=nowhere: cannot be read",
}
_CASES = [
    *(
        (command, ["demo", "--prompt=a", flag], message)
        for command in ("generate", "chat")
        for flag, message in _GENERATE.items()
    ),
    ("serve", ["nowhere"], "--model=nowhere: there is no directory or file"),
    ("serve", ["nowhere.gguf"], "--model=nowhere.gguf: there is no directory or file"),
    *(("serve", ["demo", flag], message) for flag, message in _SERVE.items()),
    ("embed", ["b", "--image=nowhere.png"], "--image=nowhere.png: cannot be read: No such file"),
    ("embed", ["b", "--text=a", "--output=nowhere/file"], "--output=nowhere/file: no file can be written"),
    ("rerank", ["b", "--query=a", "--document=a", "--output=nowhere/file"], "--output=nowhere/file: no file can be"),
    ("rerank", ["b", "--query=a", "--documents=nowhere"], "--documents=nowhere: cannot be read: No such file"),
    ("make-checkpoint", ["--config=nowhere.json", "--output=q"], "--config=nowhere.json: cannot be read: No such file"),
    ("transcribe", ["b", "--audio=nowhere.wav"], "--audio=nowhere.wav: cannot be read: No such file"),
    ("transcribe", ["--bundle=b", "nowhere.wav"], "--audio=nowhere.wav: cannot be read: No such file"),
]


@pytest.mark.parametrize(("command", "words", "message"), _CASES)
def test_a_path_is_refused_before_the_work(
    command: str, words: list[str], message: str, work: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, *words]) == 2
    streams = capsys.readouterr()
    assert message in streams.err
    assert (work, streams.out, streams.err.count("error: ")) == ([], "", 1)


@pytest.mark.parametrize("command", ["generate", "chat", "serve"])
def test_paths_that_are_right_let_the_work_begin(
    command: str, work: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--chat_template=full/file"] if command == "serve" else ["--prompt=a", "--image=full/file", "--dump=new"]
    assert main([command, "demo", *flags]) == 2
    assert "the work began" in capsys.readouterr().err
    assert work == ["serve" if command == "serve" else "cached_export"]
    assert os.listdir(folder) == ["full"]
