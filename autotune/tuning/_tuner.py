"""The tuner: runs candidates, checks their results, and times them in turns."""

import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, TypeVar

import numpy as np

from autotune.caches import FAILED, OK, REJECTED, SKIPPED, AutotuneData, Measurement, cfg_name
from autotune.kernel import ArraySpec, TuningError, arrays_of, is_tracer, is_tracing, map_arrays, wait
from autotune.tuning._agreement import disagreement
from lang_core import EagerTensor, ExecutionContext, Tensor

Cfg = TypeVar("Cfg")
MakeFn = Callable[[Any], Callable[..., Any]]

# Gain over the reference below which a candidate is not taken: it may be noise.
_MARGIN: Final = 0.03
# Least length of a sample in seconds: calls are repeated until it is reached, so that the clock's overhead is small.
_SAMPLE_S: Final = 2e-4
_MOST_CALLS: Final = 1000
# Factor on the number of rounds when the fastest candidate is confirmed against the reference.
_AGAIN: Final = 3


def why_not_here(args: Any, kwargs: Mapping[str, Any]) -> str:
    """Returns why nothing can be timed with these arguments now; empty if it can."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, ExecutionContext) and value.isRecording:
            return "a recording is open, and recorded calls have no data"
    for array in arrays_of((args, dict(kwargs))):
        if is_tracer(array):
            return "JAX traces the arguments, which have no data"
        if isinstance(array, Tensor) and not isinstance(array, EagerTensor):
            return "an argument is a recorded value, which has no data"
        if isinstance(array, ArraySpec):
            return "an argument is a spec, which has no data"
    return "JAX traces a function now" if is_tracing() else ""


class Tuner(Generic[Cfg]):
    """Timer of candidates, on arrays with data, outside of recording and tracing.

    Args:
        warmup: calls before each sample.
        iters: least number of calls of a sample.
        rounds: samples of each candidate, all candidates in turns. The minimum counts, because noise only adds. The
            fastest candidate must then win most of three times as many turns against the reference alone.
        on_measured: callback with (number done, number of candidates, measurement) for each finished candidate.
    """

    def __init__(
        self,
        warmup: int = 1,
        iters: int = 3,
        rounds: int = 3,
        on_measured: Callable[[int, int, Measurement], object] | None = None,
    ) -> None:
        self.warmup, self.iters, self.rounds = warmup, iters, rounds
        self.on_measured = on_measured

    def measure(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> float:
        """Returns the seconds of one call, the mean over a sample."""
        for _ in range(self.warmup):
            _finished(fn(*args, **kwargs))
        calls, total = 0, 0.0
        while calls < self.iters or (total < _SAMPLE_S and calls < _MOST_CALLS):
            started = time.perf_counter()
            _finished(fn(*args, **kwargs))
            total += time.perf_counter() - started
            calls += 1
        return total / calls

    def autotune(self, make_fn: MakeFn, args: Any, kwargs: Mapping[str, Any], candidates: Iterable[Cfg]) -> Cfg:
        """Returns the best candidate. The first one is the reference.

        Raises:
            TuningError: nothing can be timed here, or no candidate is good.
        """
        data = self.tune(make_fn, args, kwargs, candidates)
        if data.best is None:
            raise TuningError(
                f"none of {len(data.measurements)} candidates is good: "
                f"{data.reasons() or 'there are no candidates'}: give one that runs"
            )
        return data.best.cfg

    def tune(
        self,
        make_fn: MakeFn,
        args: Any,
        kwargs: Mapping[str, Any],
        candidates: Iterable[Cfg],
        *,
        reference: Any = None,
        known_failures: Mapping[str, str] | None = None,
        tolerance: float | None = None,
        bit_exact: bool = False,
    ) -> AutotuneData[Cfg]:
        """Runs each candidate once, compares its result, then times those that are good.

        Args:
            make_fn: function from a configuration to a function of ``args`` and ``kwargs``.
            args: positional arguments, with data.
            kwargs: keyword arguments, with data.
            candidates: configurations.
            reference: configuration whose result is right and that wins ties; the first candidate that runs if None.
                It is timed as well.
            known_failures: reasons of earlier failures, by ``cfg_name``; these candidates are skipped.
            tolerance: allowed error of results; see ``disagreement``.
            bit_exact: whether results must be the same bit for bit.

        Raises:
            TuningError: nothing can be timed here.
        """
        reason = why_not_here(args, kwargs)
        if reason:
            raise TuningError(f"cannot tune: {reason}: tune before, with arrays, or record the call and tune it later")
        ordered = _distinct(([] if reference is None else [reference]) + list(candidates))
        tuning = _Tuning(self, args, dict(kwargs), tolerance, bit_exact, len(ordered))
        for cfg in ordered:
            tuning.check(cfg, make_fn, (known_failures or {}).get(cfg_name(cfg)))
        return tuning.timed()


class _Tuning:
    """State of one tuning: measurements, and functions of the candidates that are still good."""

    def __init__(
        self, tuner: Tuner[Any], args: Any, kwargs: dict[str, Any], tolerance: float | None, exact: bool, count: int
    ) -> None:
        self._tuner, self._args, self._kwargs, self._count = tuner, args, kwargs, count
        self._tolerance, self._exact = tolerance, exact
        self._measurements: list[Measurement] = []
        self._alive: dict[int, Callable[..., Any]] = {}
        self._reference_result: Any = None

    def check(self, cfg: Any, make_fn: MakeFn, failed_before: str | None) -> None:
        """Runs a candidate once and compares its result with the reference's."""
        status, detail = OK, ""
        if failed_before is not None:
            status, detail = SKIPPED, f"failed before: {failed_before}"
        else:
            try:
                function = make_fn(cfg)
                result = map_arrays(_copied, _finished(function(*self._args, **self._kwargs)))
                if not self._alive:
                    self._reference_result = result
                else:
                    detail = disagreement(result, self._reference_result, self._tolerance, self._exact)
                    status = REJECTED if detail else OK
                if status == OK:
                    self._alive[len(self._measurements)] = function
            except Exception as error:  # noqa: BLE001 - a candidate may fail in any way; the others go on
                status, detail = FAILED, _message(error)
        self._add(Measurement(cfg, float("inf"), status, detail))

    def _add(self, measurement: Measurement) -> None:
        self._measurements.append(measurement)
        if measurement.status != OK:
            self._tell(measurement)

    def _tell(self, measurement: Measurement) -> None:
        if self._tuner.on_measured is not None:
            done = sum(one.status != OK or one.seconds < float("inf") for one in self._measurements)
            self._tuner.on_measured(done, self._count, measurement)

    def timed(self) -> AutotuneData[Any]:
        """Times the good candidates in turns."""
        samples = {number: min(sample) for number, sample in self._samples(list(self._alive), 1).items()}
        if not samples:
            return AutotuneData(self._measurements)
        first = next(iter(samples))
        chosen, best, detail = first, min(samples, key=samples.__getitem__), ""
        if _beats(samples[best], samples[first]):  # the fastest of many may be so by chance: confirm it
            pairs = self._samples([first, best], _AGAIN if self._tuner.rounds > 1 else 1)
            again = {number: min(pair) for number, pair in pairs.items()}
            if best in again and (first not in again or _beats_often(pairs[best], pairs[first])):
                chosen = best
            elif best in again:
                detail = f"not confirmed: {again[best]:.3g} s beside {again[first]:.3g} s when timed again"
            samples |= {number: min(seconds, samples[number]) for number, seconds in again.items()}
        for number, seconds in samples.items():
            if self._measurements[number].status == OK:
                note = detail if number == best else ""
                self._measurements[number] = Measurement(self._measurements[number].cfg, seconds, OK, note)
                self._tell(self._measurements[number])
        winner = self._measurements[chosen]
        return AutotuneData(self._measurements, winner if winner.status == OK else None, self._measurements[first])

    def _samples(self, numbers: list[int], times: int) -> dict[int, list[float]]:
        """Returns the samples of each candidate; candidates that fail are left out.

        Candidates take turns, ``times`` as many as the tuner has rounds. Every other turn goes backwards, so that a
        machine that becomes slower or faster meanwhile does so for all.
        """
        samples: dict[int, list[float]] = {number: [] for number in numbers}
        for turn in range(max(self._tuner.rounds, 1) * times):
            for number in list(samples) if turn % 2 == 0 else list(reversed(samples)):
                try:
                    samples[number].append(self._tuner.measure(self._alive[number], *self._args, **self._kwargs))
                except Exception as error:  # noqa: BLE001 - a candidate may fail in any way
                    del samples[number]
                    self._measurements[number] = Measurement(
                        self._measurements[number].cfg, float("inf"), FAILED, _message(error)
                    )
        return samples


def _beats(seconds: float, reference: float) -> bool:
    """Returns whether a candidate is faster by more than noise."""
    return seconds < reference * (1 - _MARGIN)


def _beats_often(seconds: list[float], reference: list[float]) -> bool:
    """Returns whether a candidate is faster in its smallest sample, and in the median of the turns."""
    ratios = [own / other for own, other in zip(seconds, reference, strict=True)]
    return _beats(min(seconds), min(reference)) and _beats(statistics.median(ratios), 1.0)


def _message(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0][:500]


def _copied(array: Any) -> Any:
    """Returns a copy of an array, because a candidate may return the same buffer again."""
    array = array.data if isinstance(array, EagerTensor) else array
    return array.copy() if isinstance(array, np.ndarray) else array


def _finished(result: Any) -> Any:
    map_arrays(wait, result)
    return result


def _distinct(cfgs: list[Any]) -> list[Any]:
    return list({cfg_name(cfg): cfg for cfg in cfgs}.values())
