"""Choice of the compiler flags that make a bundle's entry points fastest on this machine."""

import functools
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from autotune import Measurement, Tuner
from autotune.iree_compiler import CANDIDATE_FLAGS, CompileFlags
from compile_hlo import LoweredModule
from lang_core import EntryPoint, InputError, TapelineError
from run_iree import ModuleCache, Session, available, compile_module
from tapeline.cli import Progress, ProgressEvent
from tapeline.divergence import Arrays, example_inputs, next_state
from tapeline.exporting._verify import devices_of
from tapeline.tuning import tuned_target

# A text is read once, and written token by token: an entry point that takes one token counts so often.
_DECODES: Final = 16

Calls = Callable[[], dict[str, Arrays]]


def tune_flags(
    module: Path,
    weights: Path | None,
    target: str,
    entry_points: Sequence[EntryPoint],
    lowered: LoweredModule,
    vocabulary: int,
    cache: ModuleCache | None,
    progress: Progress,
) -> dict[str, Any]:
    """Compiles with each candidate, runs every entry point, compares the results, and times them.

    Args:
        module: StableHLO text.
        weights: the archive; None if the module has its weights in it.
        target: that has candidates.
        entry_points: of the module.
        lowered: results of the module's functions.
        vocabulary: V.
        cache: compiled modules of earlier exports.
        progress: receives each measurement.

    Returns:
        ``flags``, the best beside the target's, and ``candidates``: flags, seconds, status and detail of each.

    Raises:
        InputError: the target's device is not there.
    """
    (device,) = devices_of([target])
    present, why = available(device)
    if not present:
        raise InputError(f"`tune` with target={target}: its device {device} is not there ({why}): tune where it runs")
    inputs: dict[str, Arrays] = {}
    with tempfile.TemporaryDirectory(prefix=".tune-", dir=module.parent) as folder:
        tuner: Tuner[CompileFlags] = Tuner(
            warmup=0, iters=1, rounds=5, on_measured=functools.partial(_report, progress), budget=None
        )
        sessions: list[Session] = []

        def make(cfg: CompileFlags) -> Calls:
            executable = Path(folder, f"{len(sessions)}.vmfb")
            compile_module(module, executable, tuned_target(target)[0], extra_flags=cfg.compile_flags, cache=cache)
            sessions.append(Session(executable, device, parameters=weights))
            runner = _Runner(sessions[-1], lowered)
            if not inputs:
                inputs.update(_inputs(runner, entry_points, vocabulary))
            return _calls(runner, entry_points, inputs)

        try:
            candidates = [CompileFlags(flags) for flags in CANDIDATE_FLAGS]
            result = tuner.tune(make, (), {}, candidates, reference=CompileFlags())
        finally:
            for session in sessions:
                session.close()
    if result.best is None:
        raise TapelineError(f"`tune`: no candidate is good: {result.reasons()}")
    return {
        "flags": list(result.best.cfg.compile_flags),
        "candidates": [_as_json(measurement) for measurement in result.measurements],
    }


class _Runner:
    """Entry points in a session, with results by name."""

    def __init__(self, session: Session, lowered: LoweredModule) -> None:
        self._session = session
        self._results = {function.name: list(function.results) for function in lowered.functions}

    def run(self, entry_point: EntryPoint, inputs: Arrays) -> Arrays:
        """Runs an entry point and returns its results as NumPy arrays."""
        values = [
            int(inputs[argument.name]) if argument.kind == "scalar" else inputs[argument.name]
            for argument in entry_point.arguments
        ]
        tensors = self._session.function(entry_point.name)(*values)
        names = self._results[entry_point.name]
        return {name: np.array(tensor.numpy()) for name, tensor in zip(names, tensors, strict=True)}


def _inputs(runner: _Runner, entry_points: Sequence[EntryPoint], vocabulary: int) -> dict[str, Arrays]:
    """Returns the inputs of each entry point, on the caches that the one before left."""
    made: dict[str, Arrays] = {}
    state: Arrays = {}
    for entry_point in entry_points:
        specs = {argument.name: argument.spec for argument in entry_point.arguments}
        made[entry_point.name] = example_inputs(specs, vocabulary, state)
        state |= next_state(made[entry_point.name], runner.run(entry_point, made[entry_point.name]))
    return made


def _calls(runner: _Runner, entry_points: Sequence[EntryPoint], inputs: dict[str, Arrays]) -> Calls:
    def call() -> dict[str, Arrays]:
        results: dict[str, Arrays] = {}
        for entry_point in entry_points:
            tokens = inputs[entry_point.name].get("token_ids")
            for _ in range(_DECODES if tokens is not None and tokens.shape[1] == 1 else 1):
                results[entry_point.name] = runner.run(entry_point, inputs[entry_point.name])
        return results

    return call


def _report(progress: Progress, done: int, total: int, measurement: Measurement) -> None:
    flags = " ".join(measurement.cfg.compile_flags) or "the target's own flags"
    result = f"{measurement.seconds * 1e3:.3g} ms" if measurement.status == "ok" else measurement.detail
    progress(ProgressEvent(f"tuning, {done} of {total}: {flags}: {result}"))


def _as_json(measurement: Measurement) -> dict[str, Any]:
    return {
        "flags": list(measurement.cfg.compile_flags),
        "seconds": measurement.seconds if measurement.status == "ok" else None,
        "status": measurement.status,
        "detail": measurement.detail,
    }
