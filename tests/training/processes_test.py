"""Training in two processes over gloo: each loss, and the weights, are those of one process."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapeline
from tests.training._small import OPTIONS, write_small
from transformer_core.checkpoints import SafetensorsFile

_LONG = os.environ.get("TAPELINE_LONG") == "1"
_PROGRAM = "import sys; from tapeline.command import main; sys.exit(main(sys.argv[1:]))"


def launched(here: Path, **options: Any) -> tuple[list[float], str]:
    """Trains in two processes; returns the losses, and what was told."""
    flags = {**OPTIONS, **options, "model": here / "model", "data": here / "data.txt", "output": here / "two"}
    given = ["launch", "--processes=2", "--", "train", *(f"--{name}={value}" for name, value in flags.items())]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    run = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *given], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == str(here / "two")
    lines = (here / "two" / "losses.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines], run.stderr


def tensors(directory: Path) -> dict[str, np.ndarray]:
    """Returns what was trained."""
    (file,) = directory.glob("*.safetensors")
    with SafetensorsFile(file) as stored:
        return {key: np.array(stored.read(key)) for key in stored.keys()}  # noqa: SIM118


@pytest.mark.skipif(not _LONG, reason="trainings of two processes: TAPELINE_LONG=1; tests/processes has ranks")
@pytest.mark.parametrize(("mesh", "options"), [("dp=2", {"lora": 2}), ("fsdp=2", {})])
def test_two_processes_train_as_one(tmp_path: Path, mesh: str, options: dict[str, Any]) -> None:
    write_small(tmp_path)
    losses, told = launched(tmp_path, mesh=mesh, **options)
    one = tapeline.train("model", "data.txt", "one", base=tmp_path, **{**OPTIONS, **options})
    np.testing.assert_allclose(losses, one.losses, atol=1e-5)
    trained, wanted = tensors(tmp_path / "two"), tensors(one.path)
    assert set(trained) == set(wanted)
    for key, array in wanted.items():
        np.testing.assert_allclose(trained[key], array, atol=1e-4, err_msg=key)
    assert told.count("step 6 of 6") == 1  # only rank 0 tells


@pytest.mark.skipif(not _LONG, reason="trainings of two processes: TAPELINE_LONG=1; tests/processes has ranks")
@pytest.mark.parametrize("options", [{"lora": 2}, {}])
def test_two_processes_have_the_bits_of_one_that_takes_their_rows_in_turn(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    write_small(tmp_path)
    losses, _ = launched(tmp_path, mesh="dp=2", **{**options, "steps": 40})
    in_turn = {**OPTIONS, **options, "steps": 40, "batch": OPTIONS["batch"] // 2, "accumulate": 2}
    one = tapeline.train("model", "data.txt", "one", base=tmp_path, **in_turn)
    np.testing.assert_array_equal(losses, one.losses)
    trained, wanted = tensors(tmp_path / "two"), tensors(one.path)
    for key, array in wanted.items():
        np.testing.assert_array_equal(trained[key], array, err_msg=key)
