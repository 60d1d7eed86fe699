"""Whole exports of a checkpoint by ``tools:export``, whose report says what its phases cost."""

import json
import shutil
import sys
from functools import partial
from pathlib import Path

from tools.benching.suites._figures import Case, Goal, SuiteResult, Table
from tools.benching.suites._plan import MIB, Plan
from tools.benching.suites._run import Result, Runner
from tools.benching.suites._stats import Summary

_MEASURED = ("load", "lower", "parameters")
# (name, --weights, --lowering, limit of anonymous MiB)
_EXPORTS = (
    ("external, streaming", "external", "streaming", 64),
    ("external, buffered", "external", "buffered", None),
    ("inline, streaming", "inline", "streaming", 128),
    ("inline, buffered", "inline", "buffered", None),
)


def exports(runner: Runner, plan: Plan, checkpoint: Path, result: SuiteResult) -> None:
    """Adds a table of the checkpoint's exports, one round: they take long, and memory hardly differs."""
    jobs = {
        name: partial(_export, runner, plan, checkpoint, weights, lowering) for name, weights, lowering, _ in _EXPORTS
    }
    results = runner.interleaved(jobs, 1)
    size = sum(file.stat().st_size for file in checkpoint.glob("*.safetensors")) / 1e9
    title = f"tools:export of a checkpoint of {size:.2f} GB, forward, f32; load, lower and parameters, one round"
    result.tables.append(Table(title, [Case(name, _values(rows[0])) for name, rows in results.items()]))
    for name, _, _, limit in _EXPORTS:
        if limit is not None:
            text = f"export, weights {name}: anonymous memory over imports, MiB"
            result.goals.append(Goal(text, "<=", limit, _values(results[name][0])["anonymous +MiB"]))
    for weights in ("external", "inline"):
        hashes = {results[f"{weights}, {lowering}"][0]["module_sha256"] for lowering in ("streaming", "buffered")}
        result.facts[f"export, weights {weights}: streamed module is the buffered module"] = len(hashes) == 1


def _export(runner: Runner, plan: Plan, checkpoint: Path, weights: str, lowering: str) -> Result:
    output, report = runner.workdir / "bundle", runner.workdir / "report.json"
    layers = [] if plan.export_layers is None else [f"--num_layers={plan.export_layers}"]
    flags = [f"--weights={weights}", f"--lowering={lowering}", f"--sequence={plan.sequence}", *layers]
    places = [f"--model={checkpoint}", f"--output={output}", f"--report={report}"]
    fixed = ["--entry_points=forward", "--target=none", "--verify=none"]
    try:
        runner.command([sys.executable, "-m", "tools.export", *places, *flags, *fixed])
        results = json.loads(report.read_text())
        bytes_written = sum(file.stat().st_size for file in output.iterdir())
    finally:
        shutil.rmtree(output, ignore_errors=True)
    phases = [results["phases"][name] for name in _MEASURED]
    return {
        "seconds": sum(phase["seconds"] for phase in phases),
        "rss_bytes": max(phase["rss_delta_bytes"] for phase in phases),
        "anonymous_bytes": max(phase["anonymous_delta_bytes"] for phase in phases),
        "lower_anonymous_bytes": results["phases"]["lower"]["anonymous_delta_bytes"],
        "written_bytes": bytes_written,
        "module_sha256": results["hashes"]["module.mlir"],
    }


def _values(result: Result) -> dict[str, Summary]:
    return {
        "seconds": Summary.of([result["seconds"]]),
        "RSS +MiB": Summary.of([result["rss_bytes"] / MIB]),
        "anonymous +MiB": Summary.of([result["anonymous_bytes"] / MIB]),
        "anonymous +MiB, lowering": Summary.of([result["lower_anonymous_bytes"] / MIB]),
        "written GB": Summary.of([result["written_bytes"] / 1e9]),
    }
