"""Results of a suite: tables of cases, and goals."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from tools.benching.suites._stats import Summary


@dataclass(frozen=True, slots=True)
class Case:
    """One row: what was measured, and its figures by column. Other systems are peers."""

    name: str
    values: dict[str, Summary]
    peer: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows whose columns carry their units."""

    title: str
    cases: Sequence[Case]

    def columns(self) -> list[str]:
        """The columns that any row has, in the order of first use."""
        return list(dict.fromkeys(column for case in self.cases for column in case.values))


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure that was asked for.

    Attributes:
        text: what is measured, with its unit.
        sign: which way is right.
        limit: what was asked for.
        measured: what was measured; its median is judged.
    """

    text: str
    sign: Literal["<=", ">="]
    limit: float
    measured: Summary

    @property
    def met(self) -> bool:
        """True if the median is on the right side."""
        return self.measured.median <= self.limit if self.sign == "<=" else self.measured.median >= self.limit


@dataclass(frozen=True, slots=True)
class Panel:
    """One column of some cases, to be drawn as bars."""

    title: str
    column: str
    cases: Sequence[Case]


@dataclass(slots=True)
class SuiteResult:
    """Results of a suite.

    Attributes:
        suite: its name.
        tables: all figures.
        goals: those that were asked for.
        facts: what is true or false rather than more or less, such as equal texts.
        notes: what a reader has to know of what was measured, a sentence each.
        panels: what is drawn.
    """

    suite: str
    tables: list[Table] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    facts: dict[str, bool] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    panels: list[Panel] = field(default_factory=list)
