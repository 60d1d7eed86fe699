"""Fuzzes one target in a process of its own: ``python -m tests.fuzz._child TARGET --folder=DIR --runs=N --seed=N``.

The folder has ``corpus`` and ``findings``; the counts of executions and of accepted inputs are written to ``counts``.
libFuzzer prints the number of edges.
"""

import argparse
import importlib
import mmap
import os
import resource
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

import atheris

from tests.fuzz._findings import Findings, SlowError, minimize, name_of, signature_of
from tests.fuzz._target import Target
from tests.fuzz.targets import PACKAGES

_RAW: Final = 0.2  # share of mutations of bytes, of targets that have their own mutations
_COUNTS: Final = struct.Struct("<QQ")


class _Runner:
    """Runs inputs of a target, counts them and keeps findings."""

    def __init__(self, target: Target, folder: Path, seconds: float) -> None:
        """Opens the file of counts.

        Args:
            target: the target.
            folder: where counts and findings are written.
            seconds: how long to run; 0 for no limit.
        """
        self._target, self._findings = target, Findings(folder / "findings")
        self._end: Final = time.monotonic() + seconds if seconds else None
        with open(folder / "counts", "w+b") as file:
            file.write(bytes(_COUNTS.size))
            file.flush()
            self._counts: Final = mmap.mmap(file.fileno(), _COUNTS.size)
        self._executions = self._accepted = 0

    def __call__(self, data: bytes) -> None:
        """Runs one input."""
        if self._end is not None and time.monotonic() > self._end:
            sys.stderr.flush()
            os._exit(0)
        self._executions += 1
        error = failure(self._target, data)
        if error is None:
            self._accepted += 1
        elif isinstance(error, BaseException):
            self._findings.add(data, error)
        _COUNTS.pack_into(self._counts, 0, self._executions, self._accepted)


def failure(target: Target, data: bytes) -> BaseException | str | None:
    """Runs one input; returns a finding's error, "refused" for an input that is refused, or None if it is accepted."""
    start = time.process_time()
    try:
        accepted = target.run(data)
    except target.errors:
        accepted = False
    except (Exception, SystemExit) as error:  # noqa: BLE001 everything else is a finding
        return error
    seconds = time.process_time() - start
    if seconds > target.cpu_seconds:
        return SlowError(f"{seconds:.1f} s of CPU time, expected at most {target.cpu_seconds:.1f}")
    return None if accepted else "refused"


def _limit_memory(grown: int) -> None:
    """Bounds the address space, so that an input that takes too much raises a MemoryError or ends the process."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + grown
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))


def _mutator(target: Target) -> Callable[[bytes, int, int], bytes]:
    own = target.mutate

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        draw = Random(seed)
        if own is not None and draw.random() >= _RAW:
            return own(data, draw)[:max_size]
        head, line, rest = data.partition(b"\n") if target.headed else (b"", b"", data)
        left = max_size - len(head) - len(line)
        return head + line + atheris.Mutate(rest, left) if left > 0 else data

    return mutate


def _load(name: str) -> Target:
    """Imports a target with instrumented modules of this repository; its seeds are run, for these import more."""
    with atheris.instrument_imports(include=list(PACKAGES[name])):  # type: ignore[attr-defined]
        target = importlib.import_module(f"tests.fuzz.targets.{name}").TARGET
        for seed in target.seeds():
            failure(target, seed)
    return target


def _minimize(target: Target, path: Path) -> None:
    """Shortens a finding's file, if it is one of an exception."""
    data = path.read_bytes()
    error = failure(target, data)
    if not isinstance(error, BaseException) or isinstance(error, SlowError):
        return
    signature = signature_of(error)

    def still(candidate: bytes) -> bool:
        other = failure(target, candidate)
        return isinstance(other, BaseException) and signature_of(other) == signature

    path.write_bytes(minimize(data, still))


def main() -> None:
    """Runs libFuzzer, or with --minimize shortens a finding."""
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=-1)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--timeout", type=int, default=60)
    parser.add_argument("--minimize", type=Path)
    options = parser.parse_args()
    target = _load(options.target)
    if options.minimize:
        _limit_memory(target.grown_bytes)
        _minimize(target, options.minimize)
        return
    corpus = options.folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in target.seeds():
        (corpus / name_of(seed)).write_bytes(seed)
    runner = _Runner(target, options.folder, options.seconds)
    _limit_memory(target.grown_bytes)
    arguments = [
        *(sys.argv[0], f"-runs={options.runs}", f"-seed={options.seed}", f"-timeout={options.timeout}"),
        *(
            "-rss_limit_mb=0",
            "-malloc_limit_mb=0",
            "-report_slow_units=3600",
            "-max_len=65536",
            "-len_control=0",
            "-handle_int=0",
        ),
        f"-artifact_prefix={options.folder / 'findings'}/native-",
        str(corpus),
    ]
    atheris.Setup(arguments, runner, custom_mutator=_mutator(target))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
