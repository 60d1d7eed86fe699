"""Requests of the suite ``decode`` to its systems, in turns and once."""

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np

from tapeline.bundle import ARCHIVE, Bundle
from tools.benching.suites._decode_systems import System, cache_bytes, start, start_all, weights_bytes
from tools.benching.suites._plan import Plan
from tools.benching.suites._process_memory import mapped, peak_rss
from tools.benching.suites._run import Result, Runner, environment, failure
from tools.benching.suites._worker import Worker

# The phases of a round; each is one table.
PROMPT: Final = "prompt"
SHORT: Final = "short"
LONG: Final = "long"
FIRST: Final = "first token"
BANDWIDTH: Final = "reading memory"

Rounds = Mapping[str, Mapping[str, Sequence[Result]]]
"""The results of each round by phase and by system; of the phases that decode, also those of the probe."""

_WARM_STEPS: Final = 2
_LOGIT_STEPS: Final = 8


def token_ids(plan: Plan, count: int) -> list[int]:
    """Tokens that are the same for every system, and not all of them small."""
    return [(31 * place + 7) % plan.decoder.vocabulary for place in range(count)]


def measure(runner: Runner, plan: Plan, systems: list[System]) -> tuple[Rounds, dict[str, np.ndarray]]:
    """Everything that is measured in rounds, and the logits of each system ``[1 + steps, V]``."""
    with contextlib.ExitStack() as stack:
        workers = start_all(runner, plan, systems, stack)
        logits = {}
        for system in systems:
            runner.say(f"warming {system.name} ...")
            _warm(plan, system, workers[system.name])
            if system.whole:
                _first_token(runner, plan, system, workers[system.name])  # which leaves its bytecode
            logits[system.name] = _logits(runner, plan, workers[system.name])
        rounds = _rounds(runner, plan, systems, workers)
        for system in systems:
            system.once["peak_rss_bytes"] = peak_rss(workers[system.name].pid)
    return rounds, logits


def look_at_memory(runner: Runner, plan: Plan, system: System) -> None:
    """A prompt that fills the caches, in a process of its own; then a second process on the same bundle."""
    archive = system.weights / ARCHIVE
    runner.say(f"the memory of {system.name} ...")
    with start(runner, plan, system) as one:
        one.ask(do="prompt", context=LONG, ids=token_ids(plan, plan.capacity))
        system.once["full_rss_bytes"] = peak_rss(one.pid) - one.ready["base_rss_bytes"]
        with start(runner, plan, system) as other:
            other.ask(do="prompt", context=SHORT, ids=token_ids(plan, plan.prompt))
            maps = [mapped(entry.pid, archive) for entry in (one, other)]
    system.once["held_bytes"] = weights_bytes(system) + cache_bytes(Bundle(system.weights))
    system.once["mapped_bytes"] = max(entry.resident for entry in maps)
    system.once["shared_bytes"] = sum(entry.proportional for entry in maps)


def _warm(plan: Plan, system: System, worker: Worker) -> None:
    """Every page of the weights is mapped afterwards, and the long context is there."""
    worker.ask(do="prompt", context=SHORT, ids=token_ids(plan, plan.prompt))
    worker.ask(do="steps", context=SHORT, position=0, ids=token_ids(plan, _WARM_STEPS))
    long = worker.ask(do="prompt", context=LONG, ids=token_ids(plan, plan.long_context))
    system.once["long_prompt_seconds"] = long["seconds"]


def _logits(runner: Runner, plan: Plan, worker: Worker) -> np.ndarray:
    with tempfile.NamedTemporaryFile(dir=runner.workdir) as file:
        ids = token_ids(plan, plan.prompt + _LOGIT_STEPS)
        worker.ask(do="logits", prompt=ids[: plan.prompt], ids=ids[plan.prompt :], file=file.name)
        return np.fromfile(file.name, np.float32).reshape(1 + _LOGIT_STEPS, -1)


def _rounds(runner: Runner, plan: Plan, systems: list[System], workers: Mapping[str, Worker]) -> Rounds:
    """The phases of a round come one after the other; in each the systems take turns, so that ratios are of minutes."""
    ids = token_ids(plan, plan.steps)
    probe = partial(
        runner.job, "tools.benching.jobs.bandwidth", bytes=plan.bandwidth_bytes, repeats=plan.bandwidth_repeats
    )
    prompt = token_ids(plan, plan.prompt)
    phases = {
        PROMPT: {name: partial(member.ask, do="prompt", context=SHORT, ids=prompt) for name, member in workers.items()},
        SHORT: {
            name: partial(member.ask, do="steps", context=SHORT, position=0, ids=ids)
            for name, member in workers.items()
        }
        | {BANDWIDTH: probe},
        LONG: {
            name: partial(member.ask, do="steps", context=LONG, position=plan.long_context, ids=ids)
            for name, member in workers.items()
        }
        | {BANDWIDTH: probe},
        FIRST: {
            member.name: partial(_first_token, runner, plan, member, workers[member.name])
            for member in systems
            if member.whole
        },
    }
    results = {phase: {name: [] for name in jobs} for phase, jobs in phases.items()}
    for number in range(1, runner.rounds + 1):
        for phase, jobs in phases.items():
            for name, result in runner.turn(jobs, f"round {number}, {phase}").items():
                results[phase][name].append(result)
    return results


def _installed(runner: Runner) -> dict[str, str]:
    """The environment of a program whose bytecode is kept, as that of installed ones is, whatever ours says."""
    kept = environment() | {"PYTHONPYCACHEPREFIX": str(runner.workdir / "bytecode")}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return kept


def _first_token(runner: Runner, plan: Plan, system: System, worker: Worker) -> Result:
    """Measures from the start of tools:generate to the first byte of its text, and then a warm prompt."""
    ids = token_ids(plan, plan.first_prompt)
    places = [f"--bundle={system.weights}", f"--token_ids={','.join(map(str, ids))}"]
    command = [sys.executable, "-m", "tools.generate", *places, "--max_new_tokens=1"]
    began = time.perf_counter()
    with (
        tempfile.TemporaryFile("w+") as stderr,
        subprocess.Popen(
            command, env=_installed(runner), cwd=runner.workdir, stdout=subprocess.PIPE, stderr=stderr
        ) as process,
    ):
        assert process.stdout is not None
        process.stdout.read(1)
        seconds = time.perf_counter() - began
        process.stdout.read()
        if code := process.wait():
            stderr.seek(0)
            raise failure(command, code, stderr.read())
    return {"seconds": seconds, "prompt_seconds": worker.ask(do="prompt", context=SHORT, ids=ids)["seconds"]}
