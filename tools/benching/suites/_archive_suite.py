"""Suite ``archive``: a checkpoint becomes a parameter archive, beside ``cp`` of as many bytes."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tools.benching.suites._figures import Case, Goal, SuiteResult, Table
from tools.benching.suites._plan import MIB, Plan
from tools.benching.suites._run import Result, Runner
from tools.benching.suites._stats import Summary

_JOB: Final = "tools.benching.jobs.archive"
_CHECKPOINT_JOB: Final = "tools.benching.jobs.checkpoint"
_DTYPES: Final = ("bf16", "f32")
_READ: Final = 1 << 22


def archive(runner: Runner, plan: Plan) -> SuiteResult:
    """bf16 copied and bf16 widened to f32; source and page cache are warm for both systems."""
    checkpoint = runner.workdir / "checkpoint"
    runner.say("writing a checkpoint ...")
    runner.job(_CHECKPOINT_JOB, directory=str(checkpoint), sizes=list(plan.archive), dtype="bf16")
    result = SuiteResult("archive")
    cases: list[Case] = []
    for dtype in _DTYPES:
        cases += _compared(runner, checkpoint, dtype, result)
    size = (checkpoint / "model.safetensors").stat().st_size / 1e9
    result.tables = [Table(f"A bf16 checkpoint of {size:.2f} GB, warm in the page cache, to weights.irpa", cases)]
    return result


def _compared(runner: Runner, checkpoint: Path, dtype: str, result: SuiteResult) -> list[Case]:
    reference, output = runner.workdir / f"reference.{dtype}", runner.workdir / "output"
    written = _write(runner, checkpoint, reference, dtype, watch=False)
    gigabytes = written["file_bytes"] / 1e9
    _warm(checkpoint / "model.safetensors")
    _warm(reference)
    results = runner.interleaved(
        {
            "write_archive": _afresh(output, lambda: _write(runner, checkpoint, output, dtype, watch=False)),
            "cp": _afresh(output, lambda: {"seconds": runner.timed(["cp", str(reference), str(output)])}),
        }
    )
    watched = _afresh(output, lambda: _write(runner, checkpoint, output, dtype, watch=True))()
    for file in (reference, output):
        file.unlink()
    ours, peer = results["write_archive"], results["cp"]
    name = f"bf16 to {dtype}, {gigabytes:.2f} GB"
    ratio = Summary.of_pairs(peer, ours, lambda cp, mine: cp["seconds"] / mine["seconds"])
    hashed = Summary.of_pairs(peer, ours, lambda cp, mine: cp["seconds"] / mine["hashed_seconds"])
    anonymous = Summary.of([watched["anonymous_bytes"] / MIB])
    result.goals += [
        Goal(f"{name}: speed over that of cp", ">=", 0.7, ratio),
        Goal(f"{name}: anonymous memory over imports, MiB", "<=", 100, anonymous),
    ]
    result.facts[f"{name}: every archive is the same"] = (
        len({entry["sha256"] for entry in (written, watched, *ours)}) == 1
    )
    values = {
        "seconds": Summary.of_key(ours, "seconds"),
        "GB/s": Summary.of(gigabytes / entry["seconds"] for entry in ours),
        "to cp": ratio,
        "to cp, best of each": Summary.of([min(map(_seconds, peer)) / min(map(_seconds, ours))]),
        "seconds with sha256": Summary.of_key(ours, "hashed_seconds"),
        "to cp with sha256": hashed,
        "RSS +MiB": Summary.of([watched["rss_bytes"] / MIB]),
        "anonymous +MiB": anonymous,
    }
    cp = {
        "seconds": Summary.of_key(peer, "seconds"),
        "GB/s": Summary.of(gigabytes / entry["seconds"] for entry in peer),
    }
    return [Case(name, values), Case(f"cp of {gigabytes:.2f} GB", cp, peer=True)]


def _write(runner: Runner, checkpoint: Path, output: Path, dtype: str, *, watch: bool) -> Result:
    return runner.job(_JOB, checkpoint=str(checkpoint), output=str(output), dtype=dtype, watch=watch)


def _afresh(output: Path, job: Callable[[], Result]) -> Callable[[], Result]:
    """The job on a machine that has nothing left to write: no earlier output, no dirty pages."""

    def run() -> Result:
        output.unlink(missing_ok=True)
        os.sync()
        return job()

    return run


def _seconds(result: Result) -> float:
    return result["seconds"]


def _warm(path: Path) -> None:
    with path.open("rb") as file:
        while file.read(_READ):
            pass
