"""Tables, goals and panels of the suite ``decode``."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tapeline.compare import agreement
from tools.benching.suites._decode_rows import REFERENCE, Group
from tools.benching.suites._decode_systems import System
from tools.benching.suites._decode_turns import BANDWIDTH, FIRST, LONG, PROMPT, SHORT, Rounds
from tools.benching.suites._figures import Case, Goal, Panel, SuiteResult, Table
from tools.benching.suites._plan import MIB, Plan
from tools.benching.suites._stats import Summary

_SPEED: Final = "tokens/s"
_SHARE: Final = "of the memory's speed"
_TIMES: Final = "times llama.cpp"
_BESIDE: Final = "times x in 8 bits"
_OUTSIDE: Final = "µs of a step outside of the module"
_SAID: Final = "bytes of tokens per step"
_COPIED: Final = "other bytes copied per step"
_FIRST: Final = "first token, without the prompt's arithmetic, s"
_FULL: Final = "over weights and caches"
_TO_REFERENCE: Final = f"NMSE to {REFERENCE}, millionths"
_TO_PEER: Final = "NMSE to llama.cpp, millionths"
_NEARER: Final = f"NMSE to {REFERENCE}, times llama.cpp's"
_MILLIONTH: Final = 1e-6

# The limits that hold for every export.
_MOST_MEMORY: Final = 1.3
_MOST_OUTSIDE_US: Final = 100.0
_MOST_TO_FIRST_S: Final = 0.5
_LEAST_MEAN: Final = 1.25  # times the peer's decode, over all encodings
# Of logits: two computations of one model agree better than this by far, those of two models do not come near it.
_SAME_MODEL: Final = 0.1
_SHARED: Final = 1.1
_PLAIN: Final = ("F16", "BF16")


@dataclass(frozen=True, slots=True)
class Measured:
    """Measurements of a group.

    Attributes:
        group: which.
        systems: that took turns.
        rounds: their results.
        logits: by system ``[1 + steps, V]``.
    """

    group: Group
    systems: Sequence[System]
    rounds: Rounds
    logits: dict[str, np.ndarray]

    def peer_of(self, system: System) -> System | None:
        """The peer that an export is held against, where it was measured; of other bits than its group's none is."""
        wanted = system.row.peer if system.row is not None else None
        return next((system for system in self.systems if wanted is not None and system.kind == wanted), None)


def report(plan: Plan, groups: Sequence[Measured]) -> SuiteResult:
    """Everything that was found."""
    result = SuiteResult("decode")
    short = _steps_table(plan, groups, SHORT, f"Decode from empty caches, {plan.steps} tokens, batch 1")
    long = _steps_table(plan, groups, LONG, f"Decode after {plan.long_context:,} tokens, {plan.steps} more, batch 1")
    prompts, costs, memory = _prompt_table(plan, groups), _cost_table(plan, groups), _memory_table(plan, groups)
    near = _logits_table(plan, groups)
    result.tables = [short, long, prompts, costs, memory, near]
    if plan.peer is not None:
        result.notes.append(plan.peer.about())
    cases = {table.title: {case.name: case.values for case in table.cases} for table in result.tables}
    for group in groups:
        for system in group.systems:
            if system.is_judged:
                _judge(
                    result,
                    system,
                    {title: values.get(system.name, {}) for title, values in cases.items()},
                    result.tables,
                )
    _judge_all(result, groups)
    _facts(result, groups)
    result.panels = [Panel(table.title, _SPEED, table.cases) for table in (short, long, prompts)]
    return result


def _judge(result: SuiteResult, system: System, values: dict[str, dict[str, Summary]], tables: Sequence[Table]) -> None:
    row = system.row
    assert row is not None
    short, long, prompts, costs, memory, near = (values[table.title] for table in tables)

    def want(text: str, sign: Any, limit: float | None, figures: dict[str, Summary], column: str) -> None:
        if limit is not None and column in figures:
            result.goals.append(Goal(f"{row.name}: {text}", sign, limit, figures[column]))

    for context, figures in (("empty caches", short), ("a long context", long)):
        want(f"decode, {context}: times llama.cpp {row.peer}", ">=", row.decode, figures, _TIMES)
        want(f"decode, {context}: of the memory's speed", ">=", row.share, figures, _SHARE)
        if row.beside is not None:
            want(f"decode, {context}: times {row.beside[0]}", ">=", row.beside[1], figures, _BESIDE)
    want(f"prompt: times llama.cpp {row.peer}", ">=", row.prefill, prompts, _TIMES)
    want("full caches: peak memory over weights and caches", "<=", _MOST_MEMORY, memory, _FULL)
    want("step outside of the module, µs", "<=", _MOST_OUTSIDE_US, costs, _OUTSIDE)
    want("bytes copied per step, but for the token", "<=", 0, costs, _COPIED)
    want("tools:generate to the first token, without the prompt's arithmetic, s", "<=", _MOST_TO_FIRST_S, costs, _FIRST)
    limit = None if row.nmse is None else row.nmse / _MILLIONTH
    want(f"logits: {_TO_REFERENCE}", "<=", limit, near, _TO_REFERENCE)
    want(f"logits: {_NEARER}", "<=", None if limit is None else 1.0, near, _NEARER)


def _judge_all(result: SuiteResult, groups: Sequence[Measured]) -> None:
    """Holds the geometric mean over all packed exports, round by round, to its goal."""
    pairs = [
        (group, system, peer)
        for group in groups
        for system in group.systems
        if system.row is not None and system.row.decode is not None
        if (peer := group.peer_of(system)) is not None and peer.kind not in _PLAIN
    ]
    if len(pairs) < 2:
        return
    rounds = [_times(group, SHORT, system.name, peer.name) for group, system, peer in pairs]
    means = [statistics.geometric_mean(times) for times in zip(*rounds, strict=True)]
    text = f"decode, empty caches: times llama.cpp, the geometric mean of {len(pairs)} packed exports"
    result.goals.append(Goal(text, ">=", _LEAST_MEAN, Summary.of(means)))


def _steps_table(plan: Plan, groups: Sequence[Measured], phase: str, title: str) -> Table:
    def figures(group: Measured, system: System) -> dict[str, Summary]:
        mine, probe = group.rounds[phase][system.name], group.rounds[phase][BANDWIDTH]
        size, other = system.step_bytes, group.peer_of(system)
        values = {
            _SPEED: Summary.of(map(_steps_per_second, mine)),
            "GB/s": Summary.of(_steps_per_second(step) * size / 1e9 for step in mine),
            _SHARE: Summary.of_pairs(mine, probe, lambda a, b: _steps_per_second(a) * size / b["bytes_per_second"]),
            "GB per step": Summary.of([size / 1e9]),
        }
        if other is not None:
            values[_TIMES] = Summary.of(_times(group, phase, system.name, other.name))
        if system.row is not None and system.row.beside is not None:
            beside, _ = system.row.beside
            values[_BESIDE] = Summary.of(_times(group, phase, system.name, beside))
        return values

    cases = []
    for group in groups:
        probe = group.rounds[phase][BANDWIDTH]
        if probe:
            name = f"{BANDWIDTH}, beside {group.group.bits}"
            cases.append(Case(name, {"GB/s": Summary.of_key(probe, "bytes_per_second", 1e9)}))
        cases += _cases(group, figures)
    return Table(title, [*cases, *_missing(plan)])


def _prompt_table(plan: Plan, groups: Sequence[Measured]) -> Table:
    def figures(group: Measured, system: System) -> dict[str, Summary]:
        mine, other = group.rounds[PROMPT][system.name], group.peer_of(system)
        values = {
            _SPEED: Summary.of(plan.prompt / prompt["seconds"] for prompt in mine),
            f"tokens/s of {plan.long_context:,}, once": Summary.of(
                [plan.long_context / system.once["long_prompt_seconds"]]
            ),
        }
        if other is not None:
            theirs = group.rounds[PROMPT][other.name]
            values[_TIMES] = Summary.of_pairs(theirs, mine, lambda a, b: a["seconds"] / b["seconds"])
        return values

    return _table(plan, groups, f"Prompt of {plan.prompt} tokens", figures)


def _cost_table(plan: Plan, groups: Sequence[Measured]) -> Table:
    def figures(group: Measured, system: System) -> dict[str, Summary]:
        values: dict[str, Summary] = {}
        if system.row is not None:
            steps = [*group.rounds[SHORT][system.name], *group.rounds[LONG][system.name]]
            values[_OUTSIDE] = Summary.of(statistics.median(step["outside_seconds"]) * 1e6 for step in steps)
            values[_SAID] = Summary.of_key(steps, "token_bytes")
            values[_COPIED] = Summary.of_key(steps, "bytes_copied")
        if system.whole:
            first = group.rounds[FIRST][system.name]
            values["first token, s"] = Summary.of_key(first, "seconds")
            values[_FIRST] = Summary.of(turn["seconds"] - turn["prompt_seconds"] for turn in first)
            values["compiled in, s"] = Summary.of([system.once["compile_seconds"]])
        values["opened in, s"] = Summary.of([system.once["load_seconds"]])
        return values

    title = f"What lies around it; tools:generate is given {plan.first_prompt} tokens, the file cache is warm"
    return _table(plan, groups, title, figures)


def _memory_table(plan: Plan, groups: Sequence[Measured]) -> Table:
    def figures(_: Measured, system: System) -> dict[str, Summary]:
        once = system.once
        values = {"peak RSS of the process above, MiB": Summary.of([once["peak_rss_bytes"] / MIB])}
        if "full_rss_bytes" in once:
            values["weights and caches, MiB"] = Summary.of([once["held_bytes"] / MIB])
            values[f"a prompt of {plan.capacity:,}, RSS +MiB"] = Summary.of([once["full_rss_bytes"] / MIB])
            values[_FULL] = Summary.of([once["full_rss_bytes"] / once["held_bytes"]])
            values["archive mapped by one process, MiB"] = Summary.of([once["mapped_bytes"] / MIB])
            values["by two, each page once, MiB"] = Summary.of([once["shared_bytes"] / MIB])
        return values

    return _table(plan, groups, "Memory, once", figures)


def _logits_table(plan: Plan, groups: Sequence[Measured]) -> Table:
    reference = next((group.logits[REFERENCE] for group in groups if REFERENCE in group.logits), None)

    def figures(group: Measured, system: System) -> dict[str, Summary]:
        mine, other = group.logits[system.name], group.peer_of(system)
        values: dict[str, Summary] = {}
        if reference is not None and system.name != REFERENCE:
            values[_TO_REFERENCE] = Summary.of([agreement(mine, reference).nmse / _MILLIONTH])
        if other is not None:
            values[_TO_PEER] = Summary.of([agreement(mine, group.logits[other.name]).nmse / _MILLIONTH])
        if other is not None and reference is not None:
            theirs = agreement(group.logits[other.name], reference).nmse
            values[_NEARER] = Summary.of([agreement(mine, reference).nmse / theirs])
        return values

    return _table(plan, groups, "Logits of a prompt and the steps after it, the same weights", figures)


def _facts(result: SuiteResult, groups: Sequence[Measured]) -> None:
    for group in groups:
        for system in group.systems:
            prompts = group.rounds[PROMPT][system.name]
            finite = all(prompt["finite"] for prompt in prompts) and bool(np.isfinite(group.logits[system.name]).all())
            result.facts[f"{system.name}: logits are finite"] = finite
            if "shared_bytes" in system.once:
                mapped, shared = system.once["mapped_bytes"], system.once["shared_bytes"]
                result.facts[f"{system.name}: two processes share the archive's pages"] = 0 < shared <= _SHARED * mapped
            if (peer := group.peer_of(system)) is not None:
                nmse = agreement(group.logits[system.name], group.logits[peer.name]).nmse
                result.facts[f"{system.name}: the logits are those of {peer.name}"] = nmse < _SAME_MODEL


def _table(
    plan: Plan, groups: Sequence[Measured], title: str, figures: Callable[[Measured, System], dict[str, Summary]]
) -> Table:
    return Table(title, [*(case for group in groups for case in _cases(group, figures)), *_missing(plan)])


def _cases(group: Measured, figures: Callable[[Measured, System], dict[str, Summary]]) -> list[Case]:
    """A row per system that has any of a table's figures."""
    rows = [Case(system.name, figures(group, system), peer=system.row is None) for system in group.systems]
    return [case for case in rows if case.values]


def _missing(plan: Plan) -> list[Case]:
    """The row that says that there is no peer."""
    absent = plan.peer is not None and plan.peer.settings is None
    return [Case("llama.cpp: not installed", {}, peer=True)] if absent else []


def _times(group: Measured, phase: str, one: str, other: str) -> list[float]:
    """Returns how many times as fast one system decodes as another, round by round."""
    pairs = zip(group.rounds[phase][one], group.rounds[phase][other], strict=True)
    return [_steps_per_second(mine) / _steps_per_second(theirs) for mine, theirs in pairs]


def _steps_per_second(steps: Mapping[str, Any]) -> float:
    return 1 / statistics.median(steps["seconds"])
