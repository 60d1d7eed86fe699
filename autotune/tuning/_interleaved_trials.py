"""Interleaved trials of candidates: checks each against a reference, then times all within the budget."""

import functools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from autotune.caches import FAILED, OK, REJECTED, SKIPPED, AutotuneData, Measurement
from autotune.kernel import Observer, map_arrays, wait
from autotune.tuning._agreement import disagreement, incomparable
from autotune.tuning._arguments import Arguments, Written, detached, other_effects

# Gain over the reference below which a candidate is not taken: it may be noise.
_MARGIN: Final = 0.03
# Factor on the number of rounds when the fastest candidate is confirmed against the reference.
_AGAIN: Final = 3
# Seconds from which on a call is a sample by itself: noise is small beside it, and more of them take long.
_LONG_S: Final = 0.25
# Factor on the fastest time above which a long candidate is not timed again.
_SLOW: Final = 2.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a tuning.

    Attributes:
        tolerance: allowed error of results; by dtype if None.
        bit_exact: whether results must be the same bit for bit.
        budget: run time of all candidates in seconds; None is unlimited.
        rounds: trials of each candidate.
    """

    tolerance: float | None
    bit_exact: bool
    budget: float | None
    rounds: int


@dataclass(slots=True)
class _Candidate:
    """Candidate with the correct result.

    Attributes:
        function: function of the arguments.
        first: seconds of its first run, which may have compiled it.
        writes: whether it writes to its arguments.
    """

    function: Callable[..., Any]
    first: float
    writes: bool


class _LongCallError(Exception):
    """A call was long enough to be a sample; ``args`` has its seconds."""


class InterleavedTrials:
    """State of one tuning: measurements, and the candidates that are still good, by their number.

    Args:
        arguments: arguments of the call.
        limits: limits of the tuning.
        measure: function from a function and its arguments to the seconds of one call.
        on_measured: callback for each finished candidate.
        count: number of candidates.
    """

    def __init__(
        self,
        arguments: Arguments,
        limits: Limits,
        measure: Callable[..., float],
        on_measured: Callable[..., object] | None,
        count: int,
    ) -> None:
        self._arguments, self._limits, self._measure, self._count = arguments, limits, measure, count
        self._observer = Observer(on_measured, "on_measured")
        self._measurements: list[Measurement] = []
        self._good: dict[int, _Candidate] = {}
        self._reference: tuple[Any, Written] = None, {}
        self._spent = 0.0

    def check(self, cfg: Any, make_fn: Callable[[Any], Callable[..., Any]], failed_before: str | None) -> None:
        """Runs a candidate once, and compares its result and changed arguments with the reference's."""
        status, detail = OK, ""
        if failed_before is not None:
            status, detail = SKIPPED, f"failed before: {failed_before}"
        elif self._good and self._over(0.5):  # the other half is for timing
            status, detail = SKIPPED, self._too_late()
        else:
            try:
                detail = self._compared(make_fn(cfg))
                status = REJECTED if detail else OK
            except Exception as error:  # noqa: BLE001 - a candidate may fail in any way; the others go on
                self._arguments.renew()
                status, detail = FAILED, _message(error)
        self._measurements.append(Measurement(cfg, float("inf"), status, detail))
        if status != OK:
            self._tell(self._measurements[-1])

    def _compared(self, function: Callable[..., Any]) -> str:
        """Returns how a candidate differs from the reference; one that does not is kept."""
        args, kwargs = self._arguments.lent()
        started = time.perf_counter()
        try:
            result = function(*args, **kwargs)
            map_arrays(wait, result)
        finally:
            seconds = time.perf_counter() - started
            self._spent += seconds
        result, written = detached(result), self._arguments.written()
        if self._good:
            tolerance, exact = self._limits.tolerance, self._limits.bit_exact
            wanted, effects = self._reference
            wrong = disagreement(result, wanted, tolerance, exact) or other_effects(written, effects, tolerance, exact)
        else:
            self._reference, wrong = (result, written), incomparable(result)
        if not wrong:
            self._good[len(self._measurements)] = _Candidate(function, seconds, bool(written))
        return wrong

    def _over(self, share: float = 1.0) -> bool:
        """Returns whether a share of the budget is spent."""
        return self._limits.budget is not None and self._spent > share * self._limits.budget

    def _too_late(self) -> str:
        return f"not timed: the time budget of {self._limits.budget:g} s was spent"

    def _tell(self, measurement: Measurement) -> None:
        done = sum(one.status != OK or one.seconds < float("inf") for one in self._measurements)
        self._observer(done, self._count, measurement)

    def timed(self) -> AutotuneData[Any]:
        """Times the good candidates alternately."""
        samples = self._samples(list(self._good), max(self._limits.rounds, 1))
        if not samples:
            return AutotuneData(self._measurements)
        seconds = {number: min(sample) for number, sample in samples.items()}
        first = next(iter(samples))
        chosen, best, detail = first, min(seconds, key=seconds.__getitem__), ""
        if self._is_long(first) and min(samples[first]) > _SLOW * max(samples[best]):  # in every turn
            chosen = best
        elif _beats(seconds[best], seconds[first]):  # the fastest of many may be so by chance: confirm it
            chosen, detail, again = self._confirmed(first, best)
            seconds |= {number: min(*sample, seconds[number]) for number, sample in again.items()}
        for number, least in seconds.items():
            if self._measurements[number].status == OK:
                note = detail if number == best else self._measurements[number].detail
                self._measurements[number] = replace(self._measurements[number], seconds=least, detail=note)
                self._tell(self._measurements[number])
        winner = self._measurements[chosen]
        return AutotuneData(self._measurements, winner if winner.status == OK else None, self._measurements[first])

    def _confirmed(self, first: int, best: int) -> tuple[int, str, dict[int, list[float]]]:
        """Times two candidates alone; returns the one to take, why it is not the best, and the samples."""
        pairs = self._samples([first, best], _AGAIN * self._limits.rounds if self._limits.rounds > 1 else 1, least=1)
        if best in pairs and (first not in pairs or _beats_often(pairs[best], pairs[first])):
            return best, "", pairs
        if best not in pairs:
            return first, "", pairs
        one, other = (min(pairs[number]) for number in (best, first))
        return first, f"not confirmed: {one:.3g} s beside {other:.3g} s when timed again", pairs

    def _samples(self, numbers: list[int], trials: int, least: int = 0) -> dict[int, list[float]]:
        """Returns the samples of each candidate; candidates that fail or are not timed are left out.

        Candidates alternate, and every other round goes backwards, so that a machine that becomes slower or faster
        meanwhile does so for all.

        Args:
            numbers: candidates, the reference first.
            trials: number of rounds, as far as the budget goes.
            least: number of rounds in any case.
        """
        samples: dict[int, list[float]] = {number: [] for number in numbers}
        for turn in range(trials):
            for number in list(samples) if turn % 2 == 0 else list(reversed(samples)):
                needed = turn < least or (number == numbers[0] and turn == 0)
                if self._over() and not needed:
                    self._leave_out(number, samples)
                elif needed or not self._is_slow(number, samples, numbers[0]):
                    self._sample(number, samples)
        return {number: sample for number, sample in samples.items() if sample}

    def _is_long(self, number: int) -> bool:
        return self._good[number].first >= _LONG_S

    def _leave_out(self, number: int, samples: dict[int, list[float]]) -> None:
        if not samples[number]:
            self._measurements[number] = replace(self._measurements[number], status=SKIPPED, detail=self._too_late())
            self._tell(self._measurements[number])
            del samples[number]

    def _is_slow(self, number: int, samples: dict[int, list[float]], first: int) -> bool:
        """Returns whether a candidate other than the reference is not worth another sample, and notes it."""
        own, others = samples[number], [second for sample in samples.values() for second in sample]
        if number == first or not own or not self._is_long(number):
            return False
        if min(*own, self._good[number].first) <= _SLOW * min(others):
            return False
        detail = "more than twice as slow as the fastest: not timed again"
        self._measurements[number] = replace(self._measurements[number], detail=detail)
        return True

    def _sample(self, number: int, samples: dict[int, list[float]]) -> None:
        candidate = self._good[number]
        function = _ended_when_long(candidate.function) if self._is_long(number) else candidate.function
        args, kwargs = self._arguments.lent()
        started = time.perf_counter()
        try:
            samples[number].append(self._seconds(candidate, function, args, kwargs))
        except Exception as error:  # noqa: BLE001 - a candidate may fail in any way
            del samples[number]
            failed = replace(self._measurements[number], seconds=float("inf"), status=FAILED, detail=_message(error))
            self._measurements[number] = failed
        self._spent += time.perf_counter() - started
        if candidate.writes:
            self._arguments.renew()

    def _seconds(self, candidate: _Candidate, function: Callable[..., Any], args: Any, kwargs: Any) -> float:
        try:
            if not candidate.writes:
                return self._measure(function, *args, **kwargs)
            with np.errstate(all="ignore"):  # repeated calls add up in what it writes
                return self._measure(function, *args, **kwargs)
        except _LongCallError as call:
            return call.args[0]


def _ended_when_long(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function, with ``_LongCallError`` after a call that is long enough to be a sample."""

    def run(*args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        result = function(*args, **kwargs)
        map_arrays(wait, result)
        seconds = time.perf_counter() - started
        if seconds >= _LONG_S:
            raise _LongCallError(seconds)
        return result

    return functools.update_wrapper(run, function)


def _beats(seconds: float, reference: float) -> bool:
    """Returns whether a candidate is faster by more than noise."""
    return seconds < reference * (1 - _MARGIN)


def _beats_often(seconds: list[float], reference: list[float]) -> bool:
    """Returns whether a candidate is faster in its smallest sample, and in the median of the trials."""
    ratios = [own / other for own, other in zip(seconds, reference, strict=False)]
    return _beats(min(seconds), min(reference)) and _beats(statistics.median(ratios), 1.0)


def _message(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0][:500]
