"""Suite ``dump``: how fast tensors go into a dump on a file system in memory."""

import shutil
from pathlib import Path
from typing import Final

from tools.benching.suites._figures import Case, Goal, SuiteResult, Table
from tools.benching.suites._plan import Plan
from tools.benching.suites._run import Result, Runner
from tools.benching.suites._stats import Summary

_JOB: Final = "tools.benching.jobs.dump"
_MEMORY: Final = Path("/dev/shm")  # Linux' tmpfs; where it is not there, the working directory
_DTYPES: Final = ("f32", "bf16", "f16")
_MEGABYTE: Final = 1e6


def dump(runner: Runner, plan: Plan) -> SuiteResult:
    """Payloads and figures, and figures alone."""
    place = (_MEMORY if _MEMORY.is_dir() else runner.workdir) / f"tapeline-bench-{runner.workdir.name}"
    jobs = {
        f"{dtype}, {what}": lambda dtype=dtype, payload=payload: _dumped(runner, plan, place, dtype, payload)
        for dtype in _DTYPES
        for what, payload in (("payloads and figures", True), ("figures alone", False))
    }
    results = runner.interleaved(jobs)
    result = SuiteResult("dump")
    cases = []
    for name, rounds in results.items():
        speed = Summary.of(turn["bytes"] / _MEGABYTE / turn["seconds"] for turn in rounds)
        cases.append(Case(name, {"MB/s": speed, "seconds": Summary.of_key(rounds, "seconds")}))
        if "payloads" in name:
            result.goals.append(Goal(f"{name}: MB/s", ">=", 500, speed))
            result.facts[f"{name}: nothing was dropped"] = all(
                turn["payload_bytes"] == turn["bytes"] for turn in rounds
            )
    size = plan.dump_tensor_bytes / 2**20
    title = f"{plan.dump_tensors} tensors of {size:.4g} MiB each, into tmpfs"
    result.tables = [Table(title, cases)]
    return result


def _dumped(runner: Runner, plan: Plan, place: Path, dtype: str, payload: bool) -> Result:
    try:
        return runner.job(
            _JOB,
            directory=str(place),
            dtype=dtype,
            tensor_bytes=plan.dump_tensor_bytes,
            count=plan.dump_tensors,
            payload=payload,
        )
    finally:
        shutil.rmtree(place, ignore_errors=True)
