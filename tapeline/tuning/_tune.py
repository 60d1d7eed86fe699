"""Tunes the calls that a run recorded."""

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tqdm import tqdm

from autotune import (
    CacheEntry,
    ConfigSelectorChain,
    Measurement,
    PersistentCache,
    Tuner,
    autotune_recorded,
    read_record,
)
from lang_core import InputError
from tapeline import cli
from tapeline.tuning._explain import cfg_text, gain, seconds_text, specs_text, to_text

# Modules whose kernels are known without being named.
_BUILT_IN: Final = ("autotune.supplied",)


def load_kernels(modules: Sequence[str]) -> None:
    """Imports modules, so that the kernels in them are known.

    Raises:
        InputError: one is not there.
    """
    for name in (*_BUILT_IN, *modules):
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise InputError(f"--kernels={name}: cannot be imported ({error}): name a module on PYTHONPATH") from None


@dataclass(frozen=True)
class TunedCall:
    """A call that was tuned.

    Attributes:
        title: op and arguments.
        entry: what is remembered of it now.
    """

    title: str
    entry: CacheEntry[Any]


class _Progress:
    """A bar over candidates on a terminal, a line per call elsewhere."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._call = ""

    def call(self, done: int, total: int, name: str) -> None:
        """The next call begins."""
        self._call = name
        if not name:
            return
        if sys.stderr.isatty():
            if self._bar is None:
                self._bar = tqdm(total=total, desc="tuning", unit="call")
            self._bar.n = done
            self._bar.set_postfix_str(name[:60])
        else:
            cli.say(f"tuning {done + 1} of {total}: {name}")

    def candidate(self, done: int, total: int, measurement: Measurement) -> None:
        """A candidate is through."""
        if self._bar is not None:
            self._bar.set_postfix_str(f"{self._call[:40]} {done}/{total} {cfg_text(measurement.cfg)}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()


def tune_recorded(
    cache: PersistentCache[Any], record: Path, compiler: str | None, rounds: int, op: str | None = None
) -> tuple[list[TunedCall], list[tuple[str, str]]]:
    """Tunes the calls of a record and remembers what it finds.

    Args:
        cache: that remembers it.
        record: file of calls.
        compiler: ``iree`` or ``jax``: candidates are timed compiled; as they ran if None.
        rounds: samples of each candidate.
        op: only calls of this one.

    Returns:
        What was tuned; and the calls that were not, with the reason.

    Raises:
        InputError: there is no such file, or nothing of the op in it.
    """
    calls = [call for call in read_record(record) if op is None or op in (call.key.op, call.op_id)]
    if not calls:
        raise InputError(f"--record={record}: has no calls" + (f" of {op}" if op else ""))
    with _Progress() as progress:
        chain: ConfigSelectorChain[Any, Any] = ConfigSelectorChain(
            tuner=Tuner(rounds=rounds, on_measured=progress.candidate), persistent=cache
        )
        outcome = autotune_recorded(chain, calls, compiler=compiler, progress=progress.call)
    tuned = [
        TunedCall(f"{entry.op_id_v} {specs_text(entry.selection.entry.specs)}", entry.selection.entry)
        for entry in outcome.entries
        if entry.selection is not None and entry.selection.entry is not None
    ]
    return tuned, list(outcome.skipped)


def tuned_text(tuned: Sequence[TunedCall], skipped: Sequence[tuple[str, str]]) -> str:
    """A table: what each call had by heuristics, and what it has now."""
    rows = [("call", "heuristic", "best", "gain", "configuration")]
    for call in tuned:
        good = [m for m in call.entry.measurements if m.status == "ok"]
        best = next(m for m in good if to_text(m.cfg) == to_text(call.entry.cfg))
        times = seconds_text(good[0].seconds), seconds_text(best.seconds)
        rows.append((call.title, *times, f"x{gain(call.entry) or 1:.2f}", cfg_text(call.entry.cfg)))
    lines = cli.table(rows, indent="") if tuned else ["nothing was tuned"]
    return "\n".join([*lines, *(f"not tuned: {name}: {why}" for name, why in skipped)]) + "\n"
