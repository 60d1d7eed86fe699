"""Ctrl-C on a terminal: every command ends with exit code 130 and one line, and what it wrote is whole."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import tapeline
from lang_core import python_command
from tapeline.demo import write_demo_checkpoint
from tests.interrupts._terminal import on_terminal

_LONG: Final = bool(os.environ.get("TAPELINE_LONG"))
_TRIES: Final = int(os.environ.get("TAPELINE_TRIES", "200"))
_POSITIONS: Final = 16384
_SEED: Final = int(os.environ.get("TAPELINE_SEED", "13"))
_STORY: Final = ("--prompt=It was", "--max_new_tokens=16000", "--ignore_eos")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the demo model and its bundles, which have room for answers that take seconds."""
    folder = tmp_path_factory.mktemp("home")
    write_demo_checkpoint(folder / "model")
    config = json.loads((folder / "model/config.json").read_text())
    config["max_position_embeddings"] = _POSITIONS
    (folder / "model/config.json").write_text(json.dumps(config))
    sizes = {"verify": "none", "max_sequence": _POSITIONS}
    tapeline.export(folder / "model", folder / "demo", **sizes)
    tapeline.export(folder / "model", folder / "slots", slots=2, **sizes)
    tapeline.export(folder / "model", folder / "mesh", mesh="tp=2", target=[], **sizes)
    return folder


def _is_whole(folder: Path) -> bool:
    """Returns whether every bundle below a directory opens and has the files that it names."""
    bundles = [path.parent for path in folder.rglob("kernel_config.json") if not path.parent.name.endswith(".partial")]
    return all((path / name).is_file() for path in bundles for name in tapeline.Bundle(path).config.sha256)


@pytest.mark.parametrize("command", ["export", "generate"])
def test_a_command_that_exports_leaves_no_half_bundle(tmp_path: Path, command: str) -> None:
    flags = ["--output=out"] if command == "export" else list(_STORY)
    with on_terminal(tmp_path, command, "--model=demo", "--verify=none", *flags) as terminal:
        terminal.wait_for("compil")
        terminal.press()
        end = terminal.end()
    assert end.is_clean, end
    assert not list(tmp_path.rglob("kernel_config.json"))
    if command == "export":
        tapeline.export("demo", tmp_path / "out", verify="none", target=[], resume=True)
        assert _is_whole(tmp_path)


@pytest.mark.parametrize("ignored", [False, True])
def test_an_answer_is_interrupted(home: Path, ignored: bool) -> None:
    with on_terminal(home, "generate", "--bundle=demo", *_STORY, ignored=ignored) as terminal:
        terminal.wait_for(r"\w+ \w+ ")
        terminal.press()
        end = terminal.end()
    assert end.is_clean, end


def test_a_conversation_stops_its_answer_first(home: Path) -> None:
    template = home / "demo" / "chat_template.jinja"
    template.write_text("{% for message in messages %}{{ message.content }}{% endfor %}")
    with on_terminal(home, "chat", "--bundle=demo", "--max_new_tokens=16000", "--ignore_eos") as terminal:
        terminal.wait_for("> ")
        terminal.type("It was the best of times\n")
        before = len(terminal.text)
        terminal.wait_for(r"\w+ \w+ \w+ \w+ \w+ \w+ \w+ \w+ \w+ \w+ ", before)
        terminal.press()
        terminal.wait_for(r"\n> $")
        assert "interrupted" not in terminal.text
        terminal.press()
        end = terminal.end()
    assert end.is_clean, end


def test_a_server_ends(home: Path) -> None:
    with on_terminal(home, "serve", "--bundle=slots", "--port=0") as terminal:
        terminal.wait_for("http://127")
        terminal.press()
        end = terminal.end()
    assert end.code == 130, end
    assert end.text.endswith("error: interrupted\n")


def test_a_server_in_the_background_says_once_that_it_was_interrupted(home: Path) -> None:
    # A script's background job ignores SIGINT and has no terminal; a server takes the signal all the same.
    ignoring = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    command = python_command("-c", f"{ignoring}from tapeline.program import main; main()")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    with subprocess.Popen(
        [*command, "serve", "--bundle=slots", "--port=0"],
        cwd=home,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout
        assert process.stdout.readline().startswith("http://127")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert err.count("error: interrupted\n") == 1, err


def test_a_launch_ends_with_its_ranks(home: Path) -> None:
    flags = ("--bundle=mesh", "--backend=jax", "--mesh=tp=2", *_STORY)
    with on_terminal(home, "launch", "--processes=2", "--", "generate", *flags) as terminal:
        assert terminal.read_for(1.0)
        terminal.press()
        end = terminal.end()
    assert end.code == 130, end
    assert "Traceback" not in end.text
    # A rank may say so as well, behind its number.
    assert re.findall(r"(?m)^error: interrupted$", end.text.replace("\r", "")) == ["error: interrupted"]
