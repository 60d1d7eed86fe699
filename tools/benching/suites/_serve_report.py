"""Tables and goals of the suite ``serve``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tools.benching.suites._figures import Case, Goal, Panel, SuiteResult, Table
from tools.benching.suites._plan import Plan
from tools.benching.suites._run import Result
from tools.benching.suites._serve_peer import SERVER
from tools.benching.suites._serve_rows import ServeGroup
from tools.benching.suites._stats import Summary

OWN: Final = "tapeline"
IN_8_BITS: Final = ", x in 8 bits"
"""End of the name of a system of ours with activations of 8 bits."""
OPEN: Final = "open loop"
PREFIX: Final = "prefix"
ALONE: Final = "alone"
GENERATE: Final = "generate"

_TIMES: Final = f"times {SERVER}"
_LEAST_TIMES: Final = 1.5
_JUDGED_CLIENTS: Final = (8, 16)
_MOST_WARM: Final = 0.1
_MOST_OVERHEAD_MS: Final = 1.0
_ENDS: Final = {"exact": "", "q8": IN_8_BITS}


def own_name(activations: str) -> str:
    """Returns the name of our server with some activations."""
    return f"{OWN}{_ENDS[activations]}"


def generate_name(activations: str) -> str:
    """Returns the name of generation without a server, with some activations."""
    return f"{GENERATE}{_ENDS[activations]}"


def closed(clients: int) -> str:
    """Returns the name of a closed loop."""
    return f"{clients} client{'s' if clients > 1 else ''}"


@dataclass(frozen=True, slots=True)
class Served:
    """Results of a group.

    Attributes:
        group: its model.
        results: of each round by phase and by system.
        same_alone: whether answers among others were those alone, by the name of our server.
    """

    group: ServeGroup
    results: Mapping[str, Mapping[str, Sequence[Result]]]
    same_alone: Mapping[str, bool]


def report(plan: Plan, groups: Sequence[Served]) -> SuiteResult:
    """Returns all groups' tables, and what is judged."""
    result = SuiteResult("serve")
    loops = [closed(clients) for clients, _ in plan.serve.clients]
    judged = [closed(clients) for clients, _ in plan.serve.clients if clients in _JUDGED_CLIENTS]
    for served in groups:
        _loops_report(result, served, loops, judged)
        _prefix_report(result, served)
        _alone_report(result, served)
        for name, same in served.same_alone.items():
            title = f"{served.group.bits}{name.removeprefix(OWN)}"
            result.facts[f"{title}: answers among others are those alone"] = same
    if plan.server is not None:
        result.notes.append(plan.server.about())
    return result


def _loops_report(result: SuiteResult, served: Served, loops: Sequence[str], judged: Sequence[str]) -> None:
    bits = served.group.bits
    cases = [case for phase in (*loops, OPEN) for case in _loop_cases(served.results[phase], phase)]
    result.tables.append(Table(f"{bits}: under load", cases))
    result.panels.append(Panel(f"{bits}: tokens per second", "tokens/s", cases))
    for phase in (*judged, OPEN):
        systems = served.results[phase]
        for name in _own(systems) if SERVER in systems else ():
            title = f"{bits}{name.removeprefix(OWN)}: {phase}"
            result.goals += _against_peer(title, systems[name], systems[SERVER], phase != OPEN)


def _against_peer(title: str, ours: Sequence[Result], theirs: Sequence[Result], speed: bool) -> list[Goal]:

    def ratio(figure: Callable[[Result], float]) -> Summary:
        return Summary.of_pairs(ours, theirs, lambda mine, other: figure(dict(mine)) / figure(dict(other)))

    faster = [Goal(f"{title}: tokens/s, {_TIMES}", ">=", _LEAST_TIMES, ratio(tokens_per_second))] if speed else []
    return [
        *faster,
        Goal(f"{title}: first token, p95, {_TIMES}", "<=", 1.0, ratio(lambda turn: first_token(turn, 95))),
        Goal(f"{title}: between tokens, p99, {_TIMES}", "<=", 1.0, ratio(lambda turn: between_tokens(turn, 99))),
    ]


def _loop_cases(systems: Mapping[str, Sequence[Result]], phase: str) -> list[Case]:
    cases = []
    for name, rounds in _in_order(systems):
        figures: dict[str, Callable[[Result], float]] = {
            "tokens/s": tokens_per_second,
            "first token, p50, s": lambda turn: first_token(turn, 50),
            "p95, s": lambda turn: first_token(turn, 95),
            "between tokens, p50, ms": lambda turn: 1e3 * between_tokens(turn, 50),
            "p99, ms": lambda turn: 1e3 * between_tokens(turn, 99),
        }
        values = {column: Summary.of(map(figure, rounds)) for column, figure in figures.items()}
        if name != SERVER and SERVER in systems:
            values[f"tokens/s, {_TIMES}"] = Summary.of_pairs(
                rounds, systems[SERVER], lambda a, b: tokens_per_second(dict(a)) / tokens_per_second(dict(b))
            )
        cases.append(Case(f"{name}, {phase}", values, peer=name == SERVER))
    return cases


def _prefix_report(result: SuiteResult, served: Served) -> None:
    cases = []
    for name, rounds in _in_order(served.results[PREFIX]):
        share = Summary.of(turn["warm"] / turn["cold"] for turn in rounds)
        values = {
            "cold, s": Summary.of_key(rounds, "cold"),
            "warm, s": Summary.of_key(rounds, "warm"),
            "warm over cold": share,
        }
        cases.append(Case(name, values, peer=name == SERVER))
        if name != SERVER:
            title = f"{served.group.bits}{name.removeprefix(OWN)}: warm prefix over cold"
            result.goals.append(Goal(title, "<=", _MOST_WARM, share))
    result.tables.append(
        Table(f"{served.group.bits}: first token of the longest prompt, its prefix known or not", cases)
    )


def _alone_report(result: SuiteResult, served: Served) -> None:
    systems = served.results[ALONE]
    ends = [name.removeprefix(OWN) for name in _own(systems)]
    plain = {end: [1e3 * float(np.median(turn["gap_seconds"])) for turn in systems[f"{GENERATE}{end}"]] for end in ends}
    cases = [
        Case(f"{GENERATE}{end}, no server", {"between tokens, ms": Summary.of(gaps)}) for end, gaps in plain.items()
    ]
    for name, rounds in _in_order(systems):
        end = ends[0] if name == SERVER else name.removeprefix(OWN)
        gaps = [1e3 * between_tokens(turn, 50) for turn in rounds]
        over = Summary.of(gap - without for gap, without in zip(gaps, plain[end], strict=True))
        values = {"between tokens, ms": Summary.of(gaps), f"over {GENERATE}, ms": over}
        cases.append(Case(name, values, peer=name == SERVER))
        if name != SERVER:
            text = f"{served.group.bits}{end}: one client: over {GENERATE}, ms per token"
            result.goals.append(Goal(text, "<=", _MOST_OVERHEAD_MS, over))
    result.tables.append(Table(f"{served.group.bits}: one client, one short prompt", cases))


def _in_order(systems: Mapping[str, Sequence[Result]]) -> list[tuple[str, Sequence[Result]]]:
    """Returns the servers with their rounds, ours first, whoever's turn came first."""
    return [(name, systems[name]) for name in (*_own(systems), SERVER) if name in systems]


def _own(systems: Mapping[str, Sequence[Result]]) -> list[str]:
    """Returns the names of our servers, that with exact activations first."""
    return [name for name in (OWN, f"{OWN}{IN_8_BITS}") if name in systems]


def tokens_per_second(turn: Result) -> float:
    """Returns the new tokens of all answers per second of the loop."""
    return sum(answer["tokens"] for answer in turn["answers"]) / turn["seconds"]


def first_token(turn: Result, percent: float) -> float:
    """Returns a percentile of the seconds to the first token."""
    return float(np.percentile([answer["first_seconds"] for answer in turn["answers"]], percent))


def between_tokens(turn: Result, percent: float) -> float:
    """Returns a percentile of the seconds between tokens, of all answers together."""
    return float(np.percentile([gap for answer in turn["answers"] for gap in answer["gap_seconds"]], percent))
