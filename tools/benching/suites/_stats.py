"""Summaries of repeated measurements."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lang_core import InputError


@dataclass(frozen=True, slots=True)
class Summary:
    """Median and spread of a figure.

    Attributes:
        median: of all rounds.
        minimum: the least.
        maximum: the greatest.
        count: how many rounds there were.
    """

    median: float
    minimum: float
    maximum: float
    count: int

    @classmethod
    def of(cls, values: Iterable[float]) -> "Summary":
        """Summarizes values.

        Raises:
            InputError: there are none.
        """
        ordered = sorted(values)
        if not ordered:
            raise InputError("a summary of no measurements was asked for: measure at least one round")
        return cls(statistics.median(ordered), ordered[0], ordered[-1], len(ordered))

    @classmethod
    def of_key(cls, results: Sequence[Mapping[str, Any]], key: str, scale: float = 1.0) -> "Summary":
        """Summarizes one key of the rounds' results, each divided by ``scale``."""
        return cls.of(result[key] / scale for result in results)

    @classmethod
    def of_pairs(
        cls,
        ours: Sequence[Mapping[str, Any]],
        theirs: Sequence[Mapping[str, Any]],
        figure: Callable[[Mapping[str, Any], Mapping[str, Any]], float],
    ) -> "Summary":
        """Summarizes a figure of two results of the same round, so that what disturbs a round disturbs both."""
        return cls.of(figure(mine, other) for mine, other in zip(ours, theirs, strict=True))

    def __str__(self) -> str:
        least, most = _short(self.minimum), _short(self.maximum)
        return _short(self.median) if least == most else f"{_short(self.median)} [{least}-{most}]"


def _short(value: float) -> str:
    """Three digits that count, without an exponent."""
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 1 else f"{value:.3f}"
