"""Results as JSON, as text, and as the sections of docs/benchmarks.md."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lang_core import InputError
from tools.benching.suites._chart import write_chart
from tools.benching.suites._figures import Case, Goal, SuiteResult, Table
from tools.benching.suites._machine import Machine

_NUMBER: Final = "--:"
_TEXT: Final = "---"


@dataclass(frozen=True, slots=True)
class Run:
    """The circumstances of a suite's figures.

    Attributes:
        result: the figures.
        machine: where.
        date: the day, in UTC.
        command: what a person types to repeat it.
        rounds: how often everything was measured.
        load: the load average before and after.
    """

    result: SuiteResult
    machine: Machine
    date: str
    command: str
    rounds: int
    load: tuple[float, float]

    def as_json(self) -> dict[str, Any]:
        """Everything, for a file."""
        fields = dataclasses.asdict(self)
        for goal, dictionary in zip(self.result.goals, fields["result"]["goals"], strict=True):
            dictionary["found"] = dictionary.pop("measured")  # the file's own name
            dictionary["met"] = goal.met
        return fields


def write_json(path: Path, runs: Sequence[Run]) -> None:
    """Writes all runs to a file."""
    path.write_text(json.dumps([run.as_json() for run in runs], indent=2) + "\n")


def as_text(run: Run) -> str:
    """The tables for a terminal."""
    parts = [f"{run.result.suite}: {run.machine}", _circumstances(run)]
    for table in run.result.tables:
        parts += ["", table.title, *_aligned([["", *table.columns()], *_rows(table)])]
    if run.result.goals:
        parts += ["", *_aligned([["figure", "wanted", "found", ""], *map(_goal_row, run.result.goals)])]
    parts += [f"{text}: {'yes' if true else 'NO'}" for text, true in run.result.facts.items()]
    parts += run.result.notes
    return "\n".join(parts) + "\n"


def as_markdown(run: Run) -> str:
    """The section of a suite in docs/benchmarks.md."""
    parts = [f"{_circumstances(run)} Machine: {run.machine}.", "", f"`{run.command}`"]
    for table in run.result.tables:
        columns = table.columns()
        parts += [
            "",
            f"**{table.title}**",
            "",
            *_piped(["", *columns], _rows(table), [_TEXT] + [_NUMBER] * len(columns)),
        ]
    if run.result.goals:
        rows = [_goal_row(goal) for goal in run.result.goals]
        parts += ["", *_piped(["figure", "wanted", "found", ""], rows, [_TEXT, _NUMBER, _NUMBER, _TEXT])]
    if run.result.facts:
        parts += ["", *(f"- {text}: **{'yes' if true else 'no'}**" for text, true in run.result.facts.items())]
    if run.result.notes:
        parts += ["", *run.result.notes]
    if run.result.panels:
        parts += ["", f"![{run.result.suite}: the same as bars]({_picture(run)})"]
    return "\n".join(parts) + "\n"


def write_docs(path: Path, runs: Sequence[Run]) -> None:
    """Replaces the sections of these runs, between their markers, and nothing else; draws what they show.

    Raises:
        InputError: the file cannot be read, or has no place for a suite.
    """
    try:
        text = path.read_text()
    except OSError as error:
        raise InputError(f"--write_docs={path}: cannot be read ({error.strerror}): name docs/benchmarks.md") from None
    for run in runs:
        text = with_section(text, run.result.suite, as_markdown(run), str(path))
    path.write_text(text)
    for run in runs:
        if run.result.panels:
            picture = path.parent / _picture(run)
            picture.parent.mkdir(exist_ok=True)
            write_chart(run.result.panels, picture)


def _picture(run: Run) -> str:
    """The picture's place beside the page."""
    return f"images/{run.result.suite}.png"


def with_section(text: str, suite: str, section: str, where: str) -> str:
    """The text with the suite's section replaced.

    Raises:
        InputError: the markers are not there, each once.
    """
    begin, end = f"<!-- {suite}: begin -->\n", f"<!-- {suite}: end -->\n"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise InputError(f"{where}: expected {begin.strip()} and then {end.strip()}, each once on a line of its own")
    before, _, rest = text.partition(begin)
    return f"{before}{begin}{section}{end}{rest.partition(end)[2]}"


def _circumstances(run: Run) -> str:
    load = f"load average {run.load[0]:.1f} before, {run.load[1]:.1f} after"
    rounds = f"{run.rounds} rounds, median [min-max]" if run.rounds > 1 else "one round only, so without a spread"
    return f"{run.date}, {rounds}; {load}."


def _rows(table: Table) -> list[list[str]]:
    return [_row(case, table.columns()) for case in table.cases]


def _row(case: Case, columns: Sequence[str]) -> list[str]:
    values = [str(case.values[column]) if column in case.values else "" for column in columns]
    return [case.name + (" (peer)" if case.peer else ""), *values]


def _goal_row(goal: Goal) -> list[str]:
    return [goal.text, f"{goal.sign} {goal.limit:,g}", str(goal.measured), "met" if goal.met else "MISSED"]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    first, *others = widths
    return [
        "  ".join([row[0].ljust(first), *(cell.rjust(width) for cell, width in zip(row[1:], others, strict=True))])
        for row in rows
    ]


def _piped(head: Sequence[str], rows: Sequence[Sequence[str]], kinds: Sequence[str]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, kinds, *rows)]
