"""Files that become too large at every size: one typed error, no half output, and the next run succeeds."""

import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tapeline.bundle import MARK, Bundle
from tapeline.demo import write_demo_checkpoint

_LONG: Final = bool(os.environ.get("TAPELINE_LONG"))
_LIMITS: Final = (0, 5_000, 60_000) if _LONG else (0, 60_000)
_ENOUGH: Final = 10**9
_LARGEST: Final = 450_000  # the weights
_PROMPT: Final = "It was the best of times,"
_END: Final = "ended with"
# Stands for a full disk: each write beyond the limit fails, at any place of any file. One process runs the command once
# per limit, as imports are most of a command's time, and waits for a line after each run.
_PROGRAM: Final = f"""
import os, resource, signal, sys
from tapeline.command import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for limit in sys.argv[1].split(","):
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), resource.RLIM_INFINITY))
    code = main(sys.argv[2:])
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(2, f"\\n{_END} {{code}}\\n".encode())  # at once: a library's thread may be writing, too
    sys.stdin.readline()
"""


class Run(NamedTuple):
    """One run of a command: the largest size of a file, the exit code, and the text on stderr."""

    limit: int
    code: int
    err: str


def _limits() -> list[int]:
    draw = random.Random(46)
    return [*_LIMITS, *(int(_LARGEST ** draw.uniform(0.3, 1)) for _ in range(40 if _LONG else 0))]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write_demo_checkpoint(tmp_path / "model")
    return tmp_path / "model"


def _runs(words: Sequence[str], folder: Path) -> Iterator[Run]:
    """Runs a command with each limit, and at last with room for all."""
    temporary, limits = folder / "temporary", [*_limits(), _ENOUGH]
    temporary.mkdir()
    # Python itself leaves half a .pyc where a write falls short, and a later import fails.
    places = {"XDG_CACHE_HOME": str(folder / "cache"), "TMPDIR": str(temporary), "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, ",".join(map(str, limits)), *words],
        env={**os.environ, **places, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin
        assert process.stderr
        for limit in limits:
            lines: list[str] = []
            while not (line := process.stderr.readline()).startswith(_END):
                assert line, f"the process ended at {limit}: {''.join(lines)}"
                lines.append(line)
            # matplotlib has a folder there if HOME cannot be written, and removes it when the process ends.
            assert [path for path in temporary.iterdir() if not path.name.startswith("matplotlib-")] == []
            yield Run(limit, int(line.removeprefix(_END)), "".join(lines))
            process.stdin.write("\n")
            process.stdin.flush()
    assert process.returncode == 0


def _check_refusal(run: Run) -> None:
    errors = re.findall(r"(?<!\w)error: .*", run.err)  # maybe behind half a line of a thread
    assert run.code == 2, run
    assert len(errors) == 1, run
    assert "File too large" in errors[0] or "No usable temporary directory" in errors[0], run


def test_exports_that_cannot_be_written(model: Path, tmp_path: Path) -> None:
    output = tmp_path / "output"
    words = ["export", f"--model={model}", f"--output={output}", "--num_layers=1", "--max_sequence=32"]
    made = False
    for run in _runs([*words, "--verify=none", "--overwrite"], tmp_path):
        if run.limit == _ENOUGH:
            assert run.code == 0, run
        if run.code == 0:
            made = True
            assert run.limit >= 442_368
            assert Bundle(output).checks.damaged() is None
            continue
        _check_refusal(run)
        assert "Traceback" not in run.err, run
        assert (output / MARK).exists() == made
        assert not output.with_name(".output.partial").exists()


def test_caches_that_cannot_be_written(model: Path, tmp_path: Path) -> None:
    words = ["generate", f"--model={model}", f"--prompt={_PROMPT}", "--max_new_tokens=2"]
    made = False
    for run in _runs(words, tmp_path):
        if run.limit == _ENOUGH:
            assert run.code == 0, run
        if run.code == 0:
            made = True
            assert run.limit >= 442_368
            continue
        _check_refusal(run)
        assert "Traceback" not in run.err, run
        assert made or list((tmp_path / "cache").rglob(MARK)) == []
    assert len(list((tmp_path / "cache").rglob(MARK))) == 1


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*")}


def test_trainings_that_cannot_be_written(model: Path, tmp_path: Path) -> None:
    """The traceback of a thread of the library of checkpoints may stand before the error."""
    output, data = tmp_path / "output", tmp_path / "data.txt"
    data.write_text(20 * f"{_PROMPT} it was the worst of times. ")
    words = ["train", f"--model={model}", f"--data={data}", f"--output={output}", "--steps=1", "--sequence=16"]
    words += ["--batch=1", "--lora=2"]
    former = dict[str, bytes]()
    for run in _runs(words, tmp_path):
        if run.limit == _ENOUGH:
            assert run.code == 0, run
        if run.code == 0:
            assert (output / "training.json").exists()
            assert (output / "adapter_model.safetensors").exists()
            former = _contents(output)
            continue
        _check_refusal(run)
        assert _contents(output) == former
