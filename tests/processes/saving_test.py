"""A rank that dies while a checkpoint of a training is written: all end, it is named, and the training goes on."""

import os
import time
from pathlib import Path
from typing import Final

import pytest

from tests.processes._running import Launch, until
from tests.training._small import OPTIONS, write_small

_LONG: Final = os.environ.get("TAPELINE_LONG") == "1"
_TRAIN: Final = ("train", "--model=model", "--data=data.txt", "--mesh=dp=2", "--lora=2")
_FLAGS: Final = (*_TRAIN, *(f"--{name}={value}" for name, value in OPTIONS.items()))
_AT: Final = OPTIONS["save_every"] * 2

# The rank kills itself when the directory of the second checkpoint appears: it is being written then.
_RANK: Final = """
import os, pathlib, signal, sys, threading, time
def watch():
    while not any(path.name.startswith({step!r}) for path in pathlib.Path({directory!r}).glob("*")):
        time.sleep(0.0005)
    os.kill(os.getpid(), signal.SIGKILL)
if "--process_id={rank}" in sys.argv:
    threading.Thread(target=watch, daemon=True).start()
from tapeline.command import main
sys.exit(main())
"""
_LAUNCHER: Final = """
import sys
from tapeline.cli import say_error
from tapeline.launching import launch
code, error = launch(2, ["--timeout=60", "--", *sys.argv[1:]], program={program!r})
if error: say_error(error)
sys.exit(code)
"""


def _trained(here: Path, output: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((here / output).iterdir())}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a model, data, and what a training in two processes makes of them."""
    directory = tmp_path_factory.mktemp("saving")
    write_small(directory)
    code, _, errors = Launch(directory, "launch", "--processes=2", "--", *_FLAGS, "--output=whole").ended()
    assert code == 0, errors
    return directory


@pytest.mark.skipif(not _LONG, reason="trainings of two processes: TAPELINE_LONG=1")
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_dies_in_a_save(here: Path, rank: int) -> None:
    output, work = f"of{rank}", here / f".of{rank}.training"
    program = _RANK.format(rank=rank, step=str(_AT), directory=str(work / "checkpoints"))
    launch = Launch(here, *_FLAGS, f"--output={output}", program=_LAUNCHER.format(program=program))
    launch.until_it_says("parameters are trained")
    ranks = launch.ranks()
    until(lambda: any((work / "checkpoints").glob(f"{_AT}*")) or launch.process.poll() is not None)
    began = time.monotonic()
    launch.ended_by_a_kill(rank, began, ranks.values())
    assert not (here / output).exists()
    again = Launch(here, "launch", "--processes=2", "--", *_FLAGS, f"--output={output}", "--resume")
    code, _, errors = again.ended()
    assert code == 0, errors
    assert f"resumed after step {OPTIONS['save_every']}" in errors
    assert _trained(here, output) == _trained(here, "whole")
