"""``tools:export --dry_run`` beside checkpoints of the largest models, whose weights are a hole in a file."""

import shutil
import sys
from functools import partial
from pathlib import Path

from tools.benching.suites._figures import Case, Goal, SuiteResult, Table
from tools.benching.suites._plan import Plan, large_config
from tools.benching.suites._run import Result, Runner
from tools.benching.suites._stats import Summary


def dry_runs(runner: Runner, plan: Plan, rounds: int, result: SuiteResult) -> None:
    """Adds a table: the whole command, Python's start included."""
    configs = {f"{plan.large.layers} layers, D = {plan.large.hidden}": large_config(plan.large), **plan.experts}
    folders = {name: runner.workdir / f"sparse-{number}" for number, name in enumerate(configs)}
    try:
        made = {
            name: runner.job(
                "tools.benching.jobs.sparse_checkpoint", directory=str(folder), config=configs[name], dtype="bf16"
            )
            for name, folder in folders.items()
        }
        results = runner.interleaved({name: partial(_dry_run, runner, folders[name]) for name in configs}, rounds)
    finally:
        for folder in folders.values():
            shutil.rmtree(folder, ignore_errors=True)
    cases = []
    for name, rows in results.items():
        seconds = Summary.of_key(rows, "seconds")
        sizes = {"tensors": Summary.of([made[name]["tensors"]]), "GB": Summary.of([made[name]["bytes"] / 1e9])}
        cases.append(Case(name, {**sizes, "seconds": seconds}))
        result.goals.append(Goal(f"{name}: --dry_run beside a sparse checkpoint: seconds", "<=", 5, seconds))
    result.tables.append(Table("tools:export --dry_run beside a sparse checkpoint, prefill and decode", cases))


def _dry_run(runner: Runner, folder: Path) -> Result:
    output = runner.workdir / "no-bundle"
    flags = [f"--model={folder}", f"--output={output}", "--dtype=bf16", "--target=none", "--dry_run"]
    return {"seconds": runner.timed([sys.executable, "-m", "tools.export", *flags])}
