"""Suite ``pages``: steps through the slots of a server whose rows lie whole, and whose rows are pages."""

import contextlib
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from generation.engine import PagePool
from tapeline.bundle import Bundle
from tools.benching.suites._checkpoint import suite_folder
from tools.benching.suites._decode_turns import token_ids
from tools.benching.suites._figures import Case, Goal, SuiteResult, Table
from tools.benching.suites._plan import MIB, Plan
from tools.benching.suites._run import Result, Runner
from tools.benching.suites._serve_rows import ServeGroup
from tools.benching.suites._slot_workers import start_slots, step_seconds
from tools.benching.suites._stats import Summary
from tools.benching.suites._worker import Worker

_WHOLE: Final = "whole rows"
_MOST: Final = 1.1  # times the step of whole rows that a step through pages may take


def pages(runner: Runner, plan: Plan) -> SuiteResult:
    """Exports the model with whole rows and with pages of each size, and lets their steps take turns."""
    result = SuiteResult("pages")
    # The rotary embedding has to reach the last position; nothing else of the model depends on it.
    plan = replace(plan, decoder=plan.decoder._replace(positions=plan.page_capacity))
    with suite_folder(runner, plan, "pages", [ServeGroup(bits) for bits in plan.page_bits]) as above:
        for bits in plan.page_bits:
            bundles = {_WHOLE: _export(runner, plan, above, bits, None)}
            bundles |= {f"pages of {size}": _export(runner, plan, above, bits, size) for size in plan.page_sizes}
            _measure(runner, plan, bits, bundles, result)
            for bundle in bundles.values():
                shutil.rmtree(bundle)
    return result


def _export(runner: Runner, plan: Plan, above: Path, bits: str, size: int | None) -> Path:
    """Exports as many pages as whole rows have, and the one that is nobody's."""
    output = above / f"{bits}-{size or 'whole'}"
    runner.say(f"exporting {output.name} ...")
    places = [f"--model={above / 'checkpoint'}", f"--output={output}", "--target=llvm-cpu", "--verify=none"]
    sizes = ["--sequence=16", f"--max_sequence={plan.page_capacity}", f"--slots={max(plan.page_rows)}"]
    if size is not None:
        sizes += [f"--pages={max(plan.page_rows) * plan.page_capacity // size + 1}", f"--page_tokens={size}"]
    runner.command([sys.executable, "-m", "tools.export", *places, *sizes, "--dtype=bf16", f"--quantize={bits}"])
    return output


def _measure(runner: Runner, plan: Plan, bits: str, bundles: Mapping[str, Path], result: SuiteResult) -> None:
    """Fills all rows up to each context in turn, and adds what steps from there on take."""
    with contextlib.ExitStack() as stack:
        workers = {name: stack.enter_context(start_slots(runner, bundle)) for name, bundle in bundles.items()}
        start, cases, resident = 0, list[Case](), dict[str, float]()
        for context in plan.page_contexts:
            for name, worker in workers.items():
                filled = worker.ask(do="fill", start=start, stop=context, seed=context)
                resident[name] = (filled["rss_bytes"] - worker.ready["rss_bytes"]) / MIB
            for rows in plan.page_rows:
                asked = {"do": "steps", "rows": rows, "position": context, "ids": token_ids(plan, plan.page_steps)}
                turns = _turns(runner, workers, asked)
                where = f"{context:,} positions, {rows} row{'s' * (rows > 1)}"
                cases += _cases(where, turns)
                _judge(f"{bits}, {where}", turns, result)
            start = context
    result.tables += [
        Table(f"{bits}: a step through slots, by the positions in each row", cases),
        Table(f"{bits}: caches in as much memory", [_held(plan, n, b, resident[n]) for n, b in bundles.items()]),
    ]


def _turns(runner: Runner, workers: Mapping[str, Worker], asked: Result) -> dict[str, list[Result]]:
    for worker in workers.values():
        worker.ask(**asked | {"ids": asked["ids"][:2]})  # maps what a first step touches
    return runner.interleaved({name: partial(worker.ask, **asked) for name, worker in workers.items()})


def _ratio(turns: Mapping[str, list[Result]], name: str) -> Summary:
    return Summary.of_pairs(turns[name], turns[_WHOLE], lambda a, b: step_seconds(a) / step_seconds(b))


def _cases(where: str, turns: Mapping[str, list[Result]]) -> list[Case]:
    cases = []
    for name, results in turns.items():
        values = {"step, ms": Summary.of(step_seconds(turn) * 1e3 for turn in results)}
        if name != _WHOLE:
            values["times whole rows"] = _ratio(turns, name)
        cases.append(Case(f"{where}, {name}", values))
    return cases


def _judge(where: str, turns: Mapping[str, list[Result]], result: SuiteResult) -> None:
    expected = {turn["logits"] for turn in turns[_WHOLE]}
    result.facts[f"{where}: logits are finite"] = all(turn["finite"] for made in turns.values() for turn in made)
    for name in [name for name in turns if name != _WHOLE]:
        same = {turn["logits"] for turn in turns[name]} == expected and len(expected) == 1
        result.facts[f"{where}: logits of {name} are those of whole rows, bit for bit"] = same
        result.goals.append(Goal(f"{where}: step through {name}, times whole rows", "<=", _MOST, _ratio(turns, name)))


def _held(plan: Plan, name: str, bundle: Path, resident: float) -> Case:
    """Returns the bytes of a bundle's caches, and how many sequences fit there by the pool that serves."""
    described = Bundle(bundle).config.model
    values = {
        "caches, MiB": described["caching"]["bytes"] / MIB,
        "resident after filling, MiB": resident,
        "sequences of mixed lengths": _fitting(described, plan.page_mix),
        f"sequences of {min(plan.page_mix):,}": _fitting(described, (min(plan.page_mix),)),
    }
    return Case(name, {column: Summary.of([value]) for column, value in values.items()})


def _fitting(described: Mapping[str, int], lengths: tuple[int, ...]) -> int:
    """Returns how many sequences fit, whose lengths come one after the other and again."""
    if "pages" not in described:
        return described["slots"]
    pages, size = described["pages"], described["page_tokens"]
    pool = PagePool(pages, pages, size, described["max_sequence"] // size)
    return next(row for row in range(pages) if not pool.reserve(row, lengths[row % len(lengths)]))
