"""Suite ``rows``: steps of several of a server's rows at once, beside a step of one row."""

import contextlib
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from tapeline.bundle import Bundle
from tools.benching.suites._checkpoint import suite_folder
from tools.benching.suites._decode_turns import token_ids
from tools.benching.suites._figures import Case, Goal, SuiteResult, Table
from tools.benching.suites._plan import Plan
from tools.benching.suites._run import Result, Runner
from tools.benching.suites._serve_rows import ServeGroup
from tools.benching.suites._slot_workers import start_slots, step_seconds
from tools.benching.suites._stats import Summary

_TARGET: Final = "llvm-cpu"
_JUDGED: Final = 8
_MOST: Final = 1.6  # times the step of one row that a step of ``_JUDGED`` may take


def rows(runner: Runner, plan: Plan) -> SuiteResult:
    """Exports the model in each of the plan's bits, and lets steps of one row and of several take turns."""
    result = SuiteResult("rows")
    with suite_folder(runner, plan, "rows", [ServeGroup(bits) for bits in plan.row_bits]) as above:
        bundles = {
            name: _export(runner, plan, above, bits, activations)
            for bits in plan.row_bits
            for name, activations in _systems(bits).items()
        }
        _measure(runner, plan, bundles, result)
    return result


def _systems(bits: str) -> dict[str, str]:
    """Returns what a bundle's activations are by its name: products of packed weights have two kinds of x."""
    return {bits: "exact"} if bits == "bf16" else {bits: "exact", f"{bits}, x in 8 bits": "q8"}


def _export(runner: Runner, plan: Plan, above: Path, bits: str, activations: str) -> Path:
    output = above / f"{bits}-{activations}"
    runner.say(f"exporting {output.name} ...")
    command = [sys.executable, "-m", "tools.export", f"--model={above / 'checkpoint'}", f"--output={output}"]
    command += [f"--target={_TARGET}", "--verify=none", "--dtype=bf16", f"--slots={max(plan.row_counts)}"]
    command += ["--sequence=16", f"--max_sequence={plan.row_capacity}"]
    if bits != "bf16":
        command += [f"--quantize={bits}", f"--activations={activations}"]
    runner.command(command)
    return output


def _measure(runner: Runner, plan: Plan, bundles: Mapping[str, Path], result: SuiteResult) -> None:
    """Has all bundles step in every number of rows within each round, and adds what they take."""
    turns: dict[str, dict[int, list[Result]]] = {name: {count: [] for count in plan.row_counts} for name in bundles}
    with contextlib.ExitStack() as stack:
        workers = {name: stack.enter_context(start_slots(runner, bundle)) for name, bundle in bundles.items()}
        for name, worker in workers.items():
            runner.say(f"warming {name} ...")
            for count in plan.row_counts:
                worker.ask(**_asked(plan, count, 2))
        for number in range(1, runner.rounds + 1):
            for count in plan.row_counts:
                asked = _asked(plan, count, plan.row_steps)
                jobs = {name: partial(worker.ask, **asked) for name, worker in workers.items()}
                for name, turn in runner.turn(jobs, f"round {number}, {count} rows").items():
                    turns[name][count].append(turn)
    for name, by_count in turns.items():
        ratios = {count: _ratio(by_count, count) for count in plan.row_counts}
        result.facts[f"{name}: logits are finite"] = all(turn["finite"] for made in by_count.values() for turn in made)
        judged = min(_JUDGED, max(plan.row_counts))
        result.goals.append(Goal(f"{name}: a step of {judged} rows, times one", "<=", _MOST, ratios[judged]))
    result.tables += [
        Table("Milliseconds of a step, by its rows", [_times(name, turns[name]) for name in turns]),
        Table("Times a step of one row", [_ratios(name, turns[name]) for name in turns]),
    ]
    result.notes += [f"Kernels of {name}: {kernels}." for kernels, name in _kernels(bundles).items()]


def _asked(plan: Plan, count: int, steps: int) -> dict[str, Any]:
    position = plan.row_capacity // 3
    return {"do": "steps", "rows": count, "position": position, "ids": token_ids(plan, steps)}


def _ratio(by_count: Mapping[int, Sequence[Result]], count: int) -> Summary:
    """Returns how many steps of one row of the same round a step takes."""
    return Summary.of_pairs(
        by_count[count], by_count[min(by_count)], lambda some, one: step_seconds(some) / step_seconds(one)
    )


def _times(name: str, by_count: Mapping[int, Sequence[Result]]) -> Case:
    return Case(
        name, {_heading(n): Summary.of(step_seconds(turn) * 1e3 for turn in made) for n, made in by_count.items()}
    )


def _ratios(name: str, by_count: Mapping[int, Sequence[Result]]) -> Case:
    return Case(name, {_heading(n): _ratio(by_count, n) for n in by_count if n > 1})


def _heading(count: int) -> str:
    return f"{count} row{'s' * (count > 1)}"


def _kernels(bundles: Mapping[str, Path]) -> dict[str, str]:
    """Returns the names of the bundles by the kernels that their products have."""
    named: dict[str, list[str]] = {}
    for name, bundle in bundles.items():
        kernels = Bundle(bundle).config.targets[_TARGET]["kernels"].values()
        named.setdefault(", ".join(sorted({*kernels})), []).append(name)
    return {kernels: " and ".join(names) for kernels, names in named.items()}
