"""Times candidates."""

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

# A candidate must beat the reference by this much to be taken: what is less is noise.
_MARGIN: Final = 0.03
# A sample below this many seconds is mostly the clock; calls are repeated until it is reached.
_SAMPLE_S: Final = 2e-4
_MOST_CALLS: Final = 1000
# How many times the rounds the fastest candidate and the reference are timed once more.
_AGAIN: Final = 3


def why_not_here(args: Any, kwargs: Mapping[str, Any]) -> str:
    """Why nothing can be timed with these arguments now; empty where it can."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, ExecutionContext) and value.isRecording:
            return "a recording is open, and a recorded call takes no time"
    for array in arrays_of((args, dict(kwargs))):
        if is_tracer(array):
            return "JAX traces the arguments, which have no data"
        if isinstance(array, Tensor) and not isinstance(array, EagerTensor):
            return "an argument is a recorded value, which has no data"
        if isinstance(array, ArraySpec):
            return "an argument is a spec, which has no data"
    return "JAX traces a function now" if is_tracing() else ""


class Tuner(Generic[Cfg]):
    """Times candidates in turns, on arrays that are there, outside of any recording or tracing.

    Args:
        warmup: calls before each sample.
        iters: calls of a sample; more where they are short.
        rounds: samples of each candidate, all candidates in turns; the smallest counts, for noise only adds. The
            fastest one has to win again, in three times as many turns with the reference, in most of them.
        on_measured: is called with (done, of how many, the measurement) when a candidate is through.
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
        """Seconds of one call, the mean of a sample."""
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
        """The best candidate. The first one is the reference.

        Raises:
            TuningError: it cannot be done here, or none is good.
        """
        found = self.tune(make_fn, args, kwargs, candidates)
        if found.best is None:
            raise TuningError(
                f"none of {len(found.measurements)} candidates is good: {found.reasons() or 'there is none'}: give one "
                f"that runs"
            )
        return found.best.cfg

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
            make_fn: a configuration to a function of ``args`` and ``kwargs``.
            args: with data.
            kwargs: with data.
            candidates: configurations.
            reference: the configuration whose result is right and that wins ties; the first candidate that runs if
                None. It is timed as well.
            known_failures: by ``cfg_name``: not tried again.
            tolerance: see ``disagreement``.
            bit_exact: the same.

        Raises:
            TuningError: it cannot be done here.
        """
        why = why_not_here(args, kwargs)
        if why:
            raise TuningError(f"cannot tune: {why}: tune before, with arrays, or record the call and tune it later")
        ordered = _without_doubles(([] if reference is None else [reference]) + list(candidates))
        run = _Run(self, args, dict(kwargs), tolerance, bit_exact, len(ordered))
        for cfg in ordered:
            run.check(cfg, make_fn, (known_failures or {}).get(cfg_name(cfg)))
        return run.timed()


class _Run:
    """One tuning."""

    def __init__(
        self, tuner: Tuner[Any], args: Any, kwargs: dict[str, Any], tolerance: float | None, exact: bool, count: int
    ) -> None:
        self._tuner, self._args, self._kwargs, self._count = tuner, args, kwargs, count
        self._tolerance, self._exact = tolerance, exact
        self._measurements: list[Measurement] = []
        self._alive: dict[int, Callable[..., Any]] = {}
        self._wanted: Any = None

    def check(self, cfg: Any, make_fn: MakeFn, failed_before: str | None) -> None:
        """Runs a candidate once."""
        status, detail = OK, ""
        if failed_before is not None:
            status, detail = SKIPPED, f"failed before: {failed_before}"
        else:
            try:
                function = make_fn(cfg)
                found = map_arrays(_copied, _finished(function(*self._args, **self._kwargs)))
                if not self._alive:
                    self._wanted = found
                else:
                    detail = disagreement(found, self._wanted, self._tolerance, self._exact)
                    status = REJECTED if detail else OK
                if status == OK:
                    self._alive[len(self._measurements)] = function
            except Exception as error:  # noqa: BLE001 - whatever a candidate does, the others go on
                status, detail = FAILED, _said(error)
        self._add(Measurement(cfg, float("inf"), status, detail))

    def _add(self, measurement: Measurement) -> None:
        self._measurements.append(measurement)
        if measurement.status != OK:
            self._tell(measurement)

    def _tell(self, measurement: Measurement) -> None:
        if self._tuner.on_measured is not None:
            done = sum(each.status != OK or each.seconds < float("inf") for each in self._measurements)
            self._tuner.on_measured(done, self._count, measurement)

    def timed(self) -> AutotuneData[Any]:
        """Times what is good, in turns."""
        samples = {number: min(each) for number, each in self._samples(list(self._alive), 1).items()}
        if not samples:
            return AutotuneData(self._measurements)
        first = next(iter(samples))
        chosen, best, detail = first, min(samples, key=samples.__getitem__), ""
        if _beats(samples[best], samples[first]):  # of many, one is the fastest by chance: once more, these two alone
            pairs = self._samples([first, best], _AGAIN if self._tuner.rounds > 1 else 1)
            again = {number: min(each) for number, each in pairs.items()}
            if best in again and (first not in again or _beats_often(pairs[best], pairs[first])):
                chosen = best
            elif best in again:
                detail = f"not confirmed: {again[best]:.3g} s beside {again[first]:.3g} s when timed again"
            samples |= {number: min(seconds, samples[number]) for number, seconds in again.items()}
        for number, seconds in samples.items():
            if self._measurements[number].status == OK:
                said = detail if number == best else ""
                self._measurements[number] = Measurement(self._measurements[number].cfg, seconds, OK, said)
                self._tell(self._measurements[number])
        found = self._measurements[chosen]
        return AutotuneData(self._measurements, found if found.status == OK else None, self._measurements[first])

    def _samples(self, numbers: list[int], times: int) -> dict[int, list[float]]:
        """Samples of each candidate, so many times the tuner's rounds, in turns; those that fail are left out.

        Every other turn goes backwards: what becomes slower or faster meanwhile does so for all.
        """
        samples: dict[int, list[float]] = {number: [] for number in numbers}
        for turn in range(max(self._tuner.rounds, 1) * times):
            for number in list(samples) if turn % 2 == 0 else list(reversed(samples)):
                try:
                    samples[number].append(self._tuner.measure(self._alive[number], *self._args, **self._kwargs))
                except Exception as error:  # noqa: BLE001 - the same
                    del samples[number]
                    self._measurements[number] = Measurement(
                        self._measurements[number].cfg, float("inf"), FAILED, _said(error)
                    )
        return samples


def _beats(seconds: float, reference: float) -> bool:
    """Whether a candidate is faster by more than noise."""
    return seconds < reference * (1 - _MARGIN)


def _beats_often(seconds: list[float], reference: list[float]) -> bool:
    """Whether it is so of the smallest samples, and of what is in the middle of the turns."""
    ratios = [mine / other for mine, other in zip(seconds, reference, strict=True)]
    return _beats(min(seconds), min(reference)) and _beats(statistics.median(ratios), 1.0)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0][:500]


def _copied(array: Any) -> Any:
    """The result itself, for a candidate may give the same buffer again."""
    array = array.data if isinstance(array, EagerTensor) else array
    return array.copy() if isinstance(array, np.ndarray) else array


def _finished(result: Any) -> Any:
    map_arrays(wait, result)
    return result


def _without_doubles(cfgs: list[Any]) -> list[Any]:
    return list({cfg_name(cfg): cfg for cfg in cfgs}.values())
