"""Tuning of the calls in a record, with progress, and the table of the results."""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from autotune import (
    CacheEntry,
    ConfigSelectorChain,
    Measurement,
    PersistentCache,
    Tuner,
    autotune_recorded,
    read_record,
    record_file,
)
from lang_core import InputError
from tapeline import cli
from tapeline.tuning._explain import cfg_text, gain, seconds_text, specs_text, to_text

# Modules whose kernels are always loaded.
_BUILT_IN: Final = ("autotune.supplied",)


def load_kernels(modules: Sequence[str]) -> None:
    """Imports modules with kernels.

    Raises:
        InputError: a module cannot be imported.
    """
    for name in (*_BUILT_IN, *modules):
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise InputError(f"kernels={name}: cannot be imported ({error}): name a module on PYTHONPATH") from None


@dataclass(frozen=True)
class TunedCall:
    """Tuned call.

    Attributes:
        title: op and arguments.
        entry: entry that is remembered now.
    """

    title: str
    entry: CacheEntry[Any]


def tune_recorded(
    cache: PersistentCache[Any], record: Path | None, compiler: str | None, rounds: int, op: str | None = None
) -> tuple[list[TunedCall], list[tuple[str, str]]]:
    """Tunes the calls of a record and stores the results.

    Args:
        cache: cache that stores the results.
        record: file of recorded calls; the user's own if None.
        compiler: ``iree`` or ``jax``, with which candidates are timed; in the way that they were recorded if None.
        rounds: samples of each candidate.
        op: op of the calls to tune; all ops if None.

    Returns:
        The tuned calls, and (call, reason) of those that were not tuned.

    Raises:
        InputError: the file does not exist, or lacks calls of the op.
    """
    record = record_file() if record is None else record
    calls = [call for call in read_record(record) if op is None or op in (call.key.op, call.op_id)]
    if not calls:
        raise InputError(f"{record}: has no calls" + (f" of {op}" if op else ""))
    with cli.StepProgress("tuning") as progress:

        def begun(done: int, total: int, name: str) -> None:
            if name:
                progress.step(done, total, name[:60])

        def measured(done: int, total: int, measurement: Measurement) -> None:
            progress.detail(f"candidate {done} of {total}: {cfg_text(measurement.cfg)}")

        chain: ConfigSelectorChain[Any, Any] = ConfigSelectorChain(
            tuner=Tuner(rounds=rounds, on_measured=measured), persistent=cache
        )
        outcome = autotune_recorded(chain, calls, compiler=compiler, progress=begun)
    tuned = [
        TunedCall(f"{entry.op_id_v} {specs_text(entry.selection.entry.specs)}", entry.selection.entry)
        for entry in outcome.entries
        if entry.selection is not None and entry.selection.entry is not None
    ]
    return tuned, list(outcome.skipped)


def tuned_text(tuned: Sequence[TunedCall], skipped: Sequence[tuple[str, str]]) -> str:
    """Returns a table with the heuristic and the best time of each call, and its configuration."""
    rows = [("call", "heuristic", "best", "gain", "configuration")]
    for call in tuned:
        good = [m for m in call.entry.measurements if m.status == "ok"]
        best = next(m for m in good if to_text(m.cfg) == to_text(call.entry.cfg))
        times = seconds_text(good[0].seconds), seconds_text(best.seconds)
        rows.append((call.title, *times, f"x{gain(call.entry) or 1:.2f}", cfg_text(call.entry.cfg)))
    lines = cli.table(rows, indent="") if tuned else ["nothing was tuned"]
    return "\n".join([*lines, *(f"not tuned: {name}: {why}" for name, why in skipped)]) + "\n"
