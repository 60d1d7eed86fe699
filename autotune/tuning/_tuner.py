"""The tuner: its settings, and the timing of one candidate."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, TypeVar

from autotune.caches import AutotuneData, Measurement, cfg_name
from autotune.kernel import ArraySpec, TuningError, arrays_of, is_tracer, is_tracing, map_arrays, trial, wait
from autotune.tuning._arguments import Arguments
from autotune.tuning._interleaved_trials import InterleavedTrials, Limits
from lang_core import EagerTensor, ExecutionContext, Tensor, checked_choices

Cfg = TypeVar("Cfg")
MakeFn = Callable[[Any], Callable[..., Any]]

# Least length of a sample in seconds: calls are repeated until it is reached, so that the clock's overhead is small.
_SAMPLE_S: Final = 2e-4
_MOST_CALLS: Final = 1000
_BUDGET_S: Final = 20.0


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

    Candidates run on copies of whatever they could write to, and nothing that they do is tagged, recorded or profiled.
    A call longer than a quarter of a second is a sample by itself, and a candidate that takes so long and more than
    twice as long as the fastest is not timed again.

    Args:
        warmup: calls before each sample.
        iters: least number of calls of a sample.
        rounds: samples of each candidate, taken alternately. The minimum counts, because noise only adds. The
            fastest candidate must then win most of three times as many trials against the reference alone.
        on_measured: callback with (number done, number of candidates, measurement) for each finished candidate. If it
            raises, the tuning goes on.
        budget: run time of all candidates of one call in seconds, without compilation; None is unlimited.
            The reference is timed in any case, and other candidates as far as the budget goes.
    """

    def __init__(
        self,
        warmup: int = 1,
        iters: int = 3,
        rounds: int = 3,
        on_measured: Callable[[int, int, Measurement], object] | None = None,
        budget: float | None = _BUDGET_S,
    ) -> None:
        self.warmup, self.iters, self.rounds = warmup, iters, rounds
        self.on_measured = on_measured
        self.budget = budget

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
            TuningError: timing is not possible here, or all candidates failed.
        """
        data = self.tune(make_fn, args, kwargs, candidates)
        if data.best is None:
            raise TuningError(
                f"none of {len(data.measurements)} candidates is good: "
                f"{data.reasons() or 'there are no candidates'}: give one that runs"
            )
        return data.best.cfg

    @checked_choices
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

        Changes of a candidate to its arguments count as results.

        Args:
            make_fn: function from a configuration to a function of ``args`` and ``kwargs``.
            args: positional arguments, with data.
            kwargs: keyword arguments, with data.
            candidates: configurations.
            reference: configuration with the correct result, which wins ties; None for the first candidate that runs.
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
        arguments, failed = Arguments(args, kwargs), known_failures or {}
        limits = Limits(tolerance, bit_exact, self.budget, self.rounds)
        trials = InterleavedTrials(arguments, limits, self.measure, self.on_measured, len(ordered))
        with trial(arguments.values):
            for cfg in ordered:
                trials.check(cfg, make_fn, failed.get(cfg_name(cfg)))
            return trials.timed()


def _finished(result: Any) -> None:
    map_arrays(wait, result)


def _distinct(cfgs: list[Any]) -> list[Any]:
    return list({cfg_name(cfg): cfg for cfg in cfgs}.values())
