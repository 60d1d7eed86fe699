"""Runs measurements, each in a fresh process, in rounds that change order."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from lang_core import TapelineError

Result = dict[str, Any]
Say = Callable[[str], None]

_LAST_LINES: Final = 12


class BenchError(TapelineError):
    """A measured process failed."""


class Runner:
    """Starts measured processes.

    Args:
        rounds: how often each measurement is repeated.
        workdir: where they run and what they write goes.
        say: takes lines for the person who waits.
        seed: of the order within rounds.
    """

    def __init__(self, rounds: int, workdir: Path, say: Say, seed: int = 0) -> None:
        self.rounds: Final = rounds
        self.workdir: Final = workdir
        self.say: Final = say
        self._random: Final = random.Random(seed)

    def job(self, module: str, **arguments: Any) -> Result:
        """Runs a module that serves a job (``_measure.serve``) in a fresh process.

        Raises:
            BenchError: it failed.
        """
        output = self.command([sys.executable, "-m", module, json.dumps(arguments)])
        return json.loads(output.splitlines()[-1])

    def job_with_memory(self, module: str, **arguments: Any) -> Result:
        """Runs a job twice: undisturbed for the times, then watched for the memory."""
        result = self.job(module, watch=False, **arguments)
        watched = self.job(module, watch=True, **arguments)
        return result | {key: watched[key] for key in watched if key.endswith("_bytes")}

    def command(self, command: Sequence[str]) -> str:
        """Runs a command and returns what it printed. Our own modules are importable in it.

        Raises:
            BenchError: it failed.
        """
        done = subprocess.run(command, env=environment(), cwd=self.workdir, capture_output=True, text=True, check=False)
        if done.returncode:
            raise failure(command, done.returncode, done.stderr)
        return done.stdout

    def timed(self, command: Sequence[str]) -> float:
        """The seconds that a command takes, from its start to its end."""
        began = time.perf_counter()
        self.command(command)
        return time.perf_counter() - began

    def interleaved(
        self, jobs: Mapping[str, Callable[[], Result]], rounds: int | None = None
    ) -> dict[str, list[Result]]:
        """Runs every job once per round, in another order each round.

        Args:
            jobs: by the name of the case.
            rounds: how many; the runner's own number where None.

        Returns:
            The results of each job, in the order of the rounds.
        """
        results: dict[str, list[Result]] = {name: [] for name in jobs}
        for number in range(self.rounds if rounds is None else rounds):
            for name, result in self.turn(jobs, f"round {number + 1}").items():
                results[name].append(result)
        return results

    def turn(self, jobs: Mapping[str, Callable[[], Result]], label: str) -> dict[str, Result]:
        """Runs every job once, in another order each time; ``label`` says to the person which time it is."""
        results, names = {}, list(jobs)
        self._random.shuffle(names)
        for name in names:
            began = time.perf_counter()
            results[name] = jobs[name]()
            self.say(f"{label}: {name}: {time.perf_counter() - began:.1f} s")
        return results


def environment() -> dict[str, str]:
    """The environment in which our own modules are importable."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in map(os.path.abspath, sys.path) if path)}


def failure(command: Sequence[str], code: int, stderr: str) -> BenchError:
    """Returns the error about a measured process that failed."""
    last = "\n".join(stderr.splitlines()[-_LAST_LINES:])
    name = " ".join(part for part in command[1:3] if part != "-m") or command[0]
    return BenchError(f"{name}: the measured process ended with code {code}: {last}")
