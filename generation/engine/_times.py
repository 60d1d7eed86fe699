"""Histograms of the seconds that the parts of ticks take."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal

TickPart = Literal["prefix", "encode", "prefill", "draft", "decode", "choose", "tick"]

BOUNDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


@dataclass(frozen=True)
class PartTimes:
    """Histogram of the seconds of a part of ticks.

    Attributes:
        counts: ticks by the first of ``BOUNDS`` that is not below their seconds; last those above all bounds.
        seconds: sum of all.
    """

    counts: tuple[int, ...]
    seconds: float

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """Yields each bound with the number of ticks that took no longer, as Prometheus has them."""
        count = 0
        for bound, more in zip([*map(str, BOUNDS), "+Inf"], self.counts, strict=True):
            count += more
            yield bound, count


class TickTimes:
    """Seconds of the parts of ticks. One thread notes them; any may read.

    The parts are: ``prefix`` (finding, copying, storing and restoring of prefixes), ``encode`` (pictures),
    ``prefill`` and ``decode`` (calls of the model), ``draft`` (if there is speculation), ``choose`` (sampling, and
    the listeners' work), and ``tick``, all of it.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begins without ticks."""
        self._clock: Final = clock
        self._tick: Final[defaultdict[TickPart, float]] = defaultdict(float)
        self._counts: Final[dict[TickPart, list[int]]] = {}
        self._seconds: Final[defaultdict[TickPart, float]] = defaultdict(float)

    @contextmanager
    def part(self, name: TickPart) -> Iterator[None]:
        """Adds the time of a block to a part of this tick."""
        begun = self._clock()
        try:
            yield
        finally:
            self._tick[name] += self._clock() - begun

    def end(self) -> None:
        """Notes a tick with the parts that it had."""
        for name, seconds in self._tick.items():
            counts = self._counts.setdefault(name, [0] * (len(BOUNDS) + 1))
            counts[bisect_left(BOUNDS, seconds)] += 1
            self._seconds[name] += seconds
        self._tick.clear()

    def histograms(self) -> Mapping[str, PartTimes]:
        """Returns the histograms of the parts that there were."""
        return {name: PartTimes(tuple(counts), self._seconds[name]) for name, counts in list(self._counts.items())}
