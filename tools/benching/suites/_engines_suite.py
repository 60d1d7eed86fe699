"""Suite ``engines``: one bundle in IREE and in JAX on the CPU, by the bits of its weights."""

import contextlib
import json
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from tapeline.compare import agreement
from tapeline.engines import ENGINES
from tools.benching.suites._decode_turns import token_ids
from tools.benching.suites._figures import Case, Goal, SuiteResult, Table
from tools.benching.suites._plan import Plan
from tools.benching.suites._process_memory import peak_rss
from tools.benching.suites._run import Result, Runner, environment
from tools.benching.suites._stats import Summary
from tools.benching.suites._worker import Worker

_EXPORTS: Final = {
    "f32": ("--dtype=f32",),
    "bf16": ("--dtype=bf16",),
    "q8_0": ("--dtype=bf16", "--quantize=q8_0"),
    "q4_0": ("--dtype=bf16", "--quantize=q4_0"),
}
_SAME: Final = {
    "f32": 1e-9,
    "bf16": 1e-2,
    "q8_0": 1e-2,
    "q4_0": 1e-2,
}  # largest NMSE of one engine's logits to the other's
_LOGIT_STEPS: Final = 4
_STEP: Final = "steps"
_PROMPT: Final = "prompt"


def engines(runner: Runner, plan: Plan) -> SuiteResult:
    """Exports the model with each kind of weights, and lets the engines take turns."""
    above = runner.workdir / "engines"
    above.mkdir()
    result, cases = SuiteResult("engines"), list[Case]()
    try:
        checkpoint, sizes = above / "checkpoint", list(plan.decoder)
        runner.job("tools.benching.jobs.checkpoint", directory=str(checkpoint), sizes=sizes, dtype="bf16")
        for bits in plan.engine_bits:
            bundle = above / bits
            _export(runner, plan, checkpoint, bundle, _EXPORTS[bits])
            cases += _measured(runner, plan, bundle, result)
            shutil.rmtree(bundle)
    finally:
        shutil.rmtree(above, ignore_errors=True)
    result.tables = [Table(f"One bundle in each engine: prompts of {plan.prompt} tokens, steps of one", cases)]
    result.notes = ["Ready is the time until a first prompt and a first step were answered; XLA compiles within it."]
    return result


def _export(runner: Runner, plan: Plan, checkpoint: Path, bundle: Path, flags: tuple[str, ...]) -> None:
    runner.say(f"exporting {bundle.name} ...")
    sizes = [f"--sequence={plan.prompt}", f"--max_sequence={plan.capacity}"]
    places = [f"--model={checkpoint}", f"--output={bundle}", "--target=llvm-cpu", "--verify=none"]
    runner.command([sys.executable, "-m", "tools.export", *places, *sizes, *flags])


def _measured(runner: Runner, plan: Plan, bundle: Path, result: SuiteResult) -> list[Case]:
    """Returns a row per engine of one bundle, and notes what is wanted of the two."""
    with contextlib.ExitStack() as stack:
        workers = {engine: stack.enter_context(_start(runner, bundle, engine)) for engine in ENGINES}
        ready = {engine: _warm(plan, worker) for engine, worker in workers.items()}
        logits = {engine: _logits(runner, plan, worker) for engine, worker in workers.items()}
        turns = {
            phase: runner.interleaved(
                {engine: partial(_ask, plan, worker, phase) for engine, worker in workers.items()}
            )
            for phase in (_PROMPT, _STEP)
        }
        memory = {engine: peak_rss(worker.pid) - worker.ready["base_rss_bytes"] for engine, worker in workers.items()}
    nmse = agreement(logits["jax"], logits["iree"]).nmse
    result.goals.append(
        Goal(f"{bundle.name}: NMSE of XLA's logits to IREE's", "<=", _SAME[bundle.name], Summary.of([nmse]))
    )
    return [
        _case(
            f"{bundle.name}, {engine}", {phase: turns[phase][engine] for phase in turns}, turns, ready, memory, engine
        )
        for engine in ENGINES
    ]


def _case(
    name: str,
    rounds: dict[str, list[Result]],
    turns: dict[str, dict[str, list[Result]]],
    ready: dict[str, float],
    memory: dict[str, int],
    engine: str,
) -> Case:
    values = {
        f"{phase}, tokens/s": Summary.of(turn["tokens"] / turn["seconds"] for turn in results)
        for phase, results in rounds.items()
    }
    values |= {
        f"{phase}, times IREE's": Summary.of_pairs(
            results, turns[phase]["iree"], lambda a, b: b["seconds"] / a["seconds"]
        )
        for phase, results in rounds.items()
        if engine != "iree"
    }
    values["ready, s"] = Summary.of([ready[engine]])
    values["peak memory above imports, MiB"] = Summary.of([memory[engine] / 2**20])
    return Case(name, values)


def _start(runner: Runner, bundle: Path, engine: str) -> Worker:
    arguments = json.dumps({"weights": str(bundle), "engine": engine})
    return Worker([sys.executable, "-m", "tools.benching.jobs.decode", arguments], environment(), runner.workdir)


def _warm(plan: Plan, worker: Worker) -> float:
    """Answers a prompt and a step, and returns the seconds since the process began to load."""
    prompt = worker.ask(do="prompt", context="turns", ids=token_ids(plan, plan.prompt))
    steps = worker.ask(do="steps", context="turns", position=0, ids=token_ids(plan, 1))
    return worker.ready["load_seconds"] + prompt["seconds"] + sum(steps["seconds"])


def _ask(plan: Plan, worker: Worker, phase: str) -> Result:
    """Returns the tokens and the seconds of one turn."""
    if phase == _PROMPT:
        answer = worker.ask(do=_PROMPT, context="turns", ids=token_ids(plan, plan.prompt))
        return {"tokens": plan.prompt, "seconds": answer["seconds"]}
    answer = worker.ask(do=_STEP, context="turns", position=0, ids=token_ids(plan, plan.steps))
    return {"tokens": plan.steps, "seconds": sum(answer["seconds"])}


def _logits(runner: Runner, plan: Plan, worker: Worker) -> np.ndarray:
    with tempfile.NamedTemporaryFile(dir=runner.workdir) as file:
        ids = token_ids(plan, plan.prompt + _LOGIT_STEPS)
        worker.ask(do="logits", prompt=ids[: plan.prompt], ids=ids[plan.prompt :], file=file.name)
        return np.fromfile(file.name, np.float32)
