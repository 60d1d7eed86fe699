"""Files that become too large at every size: one typed error, no half output, and the next run succeeds."""

import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tapeline.bundle import MARK, Bundle
from tapeline.demo import write_demo_checkpoint

_LONG: Final = bool(os.environ.get("TAPELINE_LONG"))
_LIMITS: Final = (0, 5_000, 60_000)
_LARGEST: Final = 450_000  # the weights
_PROMPT: Final = "It was the best of times,"
# Stands for a full disk: each write beyond the limit fails, at any place of any file.
_PROGRAM: Final = """
import resource, signal, sys
from tapeline.command import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
sys.exit(main(sys.argv[2:]))
"""


def _limits() -> list[int]:
    draw = random.Random(46)
    return [*_LIMITS, *(int(_LARGEST ** draw.uniform(0.3, 1)) for _ in range(40 if _LONG else 0))]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write_demo_checkpoint(tmp_path / "model")
    return tmp_path / "model"


def _run(words: Sequence[str], folder: Path, limit: int) -> subprocess.CompletedProcess[str]:
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    # Python itself leaves half a .pyc where a write falls short, and a later import fails.
    places = {"XDG_CACHE_HOME": str(folder / "cache"), "TMPDIR": str(temporary), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(limit), *words],
        env={**os.environ, **places, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert list(temporary.iterdir()) == []
    return done


def _check_refusal(done: subprocess.CompletedProcess[str], limit: int) -> None:
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 2, (limit, done.stderr)
    assert len(errors) == 1, (limit, done.stderr)
    assert "File too large" in errors[0] or "No usable temporary directory" in errors[0], (limit, done.stderr)


def test_exports_that_cannot_be_written(model: Path, tmp_path: Path) -> None:
    output = tmp_path / "output"
    words = ["export", f"--model={model}", f"--output={output}", "--num_layers=1", "--max_sequence=32"]
    words += ["--verify=none"]
    for limit in _limits():
        done = _run(words, tmp_path, limit)
        if done.returncode == 0:
            assert limit >= 442_368
            assert Bundle(output).checks.damaged() is None
            continue
        _check_refusal(done, limit)
        assert "Traceback" not in done.stderr, (limit, done.stderr)
        assert not (output / MARK).exists()
        assert not output.with_name(".output.partial").exists()
    done = _run([*words, "--overwrite"], tmp_path, 10**9)
    assert done.returncode == 0, done.stderr
    assert Bundle(output).checks.damaged() is None


def test_caches_that_cannot_be_written(model: Path, tmp_path: Path) -> None:
    words = ["generate", f"--model={model}", f"--prompt={_PROMPT}", "--max_new_tokens=2"]
    for limit in _limits():
        done = _run(words, tmp_path, limit)
        if done.returncode == 0:
            assert limit >= 442_368
            continue
        _check_refusal(done, limit)
        assert "Traceback" not in done.stderr, (limit, done.stderr)
        assert list((tmp_path / "cache").rglob(MARK)) == []
    done = _run(words, tmp_path, 10**9)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_trainings_that_cannot_be_written(model: Path, tmp_path: Path) -> None:
    """The traceback of a thread of the library of checkpoints may stand before the error."""
    output, data = tmp_path / "output", tmp_path / "data.txt"
    data.write_text(20 * f"{_PROMPT} it was the worst of times. ")
    words = ["train", f"--model={model}", f"--data={data}", f"--output={output}", "--steps=1", "--sequence=16"]
    words += ["--batch=1", "--lora=2"]
    for limit in _limits():
        done = _run(words, tmp_path, limit)
        if done.returncode == 0:
            assert (output / "training.json").exists()
            continue
        _check_refusal(done, limit)
        assert not output.exists()
    done = _run(words, tmp_path, 10**9)
    assert done.returncode == 0, done.stderr
    assert (output / "adapter_model.safetensors").exists()
