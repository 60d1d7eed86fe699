"""A training that is killed, wherever it is, goes on to the same losses and weights, bit for bit."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.training._small import OPTIONS, write_small

_LONG = os.environ.get("TAPELINE_LONG") == "1"
_KILLS = 20 if _LONG else 1
_STEPS = 300 if _LONG else 12  # more than are done between so many kills
_PROGRAM = "import sys; from tapeline.command import main; sys.exit(main(sys.argv[1:]))"
_FILES = ("losses.jsonl", "adapter_model.safetensors", "adapter_config.json", "training.json", "loss.svg")


def start(here: Path, output: str) -> subprocess.Popen[bytes]:
    """Starts or goes on with a training whose output is in ``here``."""
    flags = {**OPTIONS, "steps": _STEPS, "lora": 2, "model": here / "model", "data": here / "data.txt"}
    given = [f"--{name}={value}" for name, value in flags.items()]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, "train", *given, f"--output={here / output}", "--resume"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def finish(here: Path, output: str) -> None:
    process = start(here, output)
    _, told = process.communicate()
    assert process.returncode == 0, told.decode()


def lines(here: Path) -> int:
    """Returns the number of losses that a training has noted so far."""
    path = here / ".killed.training" / "losses.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("killed")
    write_small(directory)
    finish(directory, "whole")
    return directory


def test_a_killed_training_goes_on_to_the_same_bits(here: Path) -> None:
    draw = random.Random(5)
    kills = 0
    for _ in range(_KILLS):
        process, before = start(here, "killed"), lines(here)
        wanted = before + draw.randint(0, 3)
        while process.poll() is None and lines(here) <= wanted:
            time.sleep(0.002)
        time.sleep(draw.random() * 0.02)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.communicate()
        assert not (here / "killed").exists()
    assert kills == _KILLS
    finish(here, "killed")
    assert not (here / ".killed.training").exists()
    for name in _FILES:
        assert (here / "killed" / name).read_bytes() == (here / "whole" / name).read_bytes(), name
