"""Suite ``engines``: one bundle in IREE and in JAX on one device, by the bits of its weights."""

import contextlib
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from run_iree import target_of_device
from tapeline.backends import ENGINES, Place
from tapeline.bundle import Bundle
from tapeline.compare import agreement
from tools.benching.suites._decode_systems import step_bytes
from tools.benching.suites._decode_turns import token_ids
from tools.benching.suites._figures import Case, Goal, SuiteResult, Table
from tools.benching.suites._peer import peer_environment
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
_DEVICE_BYTES: Final = 8 << 30  # of the array that shows how fast a device's memory is read; no cache holds it
_LIMIT: Final = "steps, share of the device's limit"
_TORCH_DTYPES: Final = {"f32": "float32", "bf16": "bfloat16"}


def engines(runner: Runner, plan: Plan) -> SuiteResult:
    """Exports the model with each kind of weights, and lets the engines and the peer, if any, take turns."""
    above = runner.workdir / "engines"
    above.mkdir()
    result, cases = SuiteResult("-".join(filter(None, ["engines", plan.engine_device]))), list[Case]()
    limit = _limit(runner, plan, result) if plan.engine_device else None
    try:
        checkpoint, plan = _model(runner, plan, above)
        for bits in plan.engine_bits:
            bundle = above / bits
            _export(runner, plan, checkpoint, bundle, _EXPORTS[bits])
            cases += _measured(runner, plan, checkpoint, bundle, result, limit)
            shutil.rmtree(bundle)
    finally:
        shutil.rmtree(above, ignore_errors=True)
    result.tables = [Table(f"One bundle in each engine: prompts of {plan.prompt} tokens, steps of one", cases)]
    result.notes.append("Ready: the time until a first prompt and a first step were answered; XLA compiles within it.")
    if plan.engine_peer is not None:
        result.notes.append(plan.engine_peer.about())
    return result


def _model(runner: Runner, plan: Plan, above: Path) -> tuple[Path, Plan]:
    """Returns the checkpoint, made where none is given, and the plan with the size of its vocabulary."""
    if plan.checkpoint is not None:
        config = json.loads((plan.checkpoint / "config.json").read_text())
        return plan.checkpoint, replace(plan, decoder=plan.decoder._replace(vocabulary=config["vocab_size"]))
    made, sizes = above / "checkpoint", list(plan.decoder)
    runner.job("tools.benching.jobs.checkpoint", directory=str(made), sizes=sizes, dtype="bf16")
    return made, plan


def _limit(runner: Runner, plan: Plan, result: SuiteResult) -> float:
    """Returns the bytes that the device reads in a second, and notes them."""
    measured = runner.job(
        "tools.benching.jobs.device_bandwidth",
        bytes=_DEVICE_BYTES,
        repeats=plan.bandwidth_repeats,
        device=plan.engine_device,
    )
    result.notes.append(
        f"Device: {measured['kind']}, whose memory was read at {measured['read'] / 1e9:,.0f} GB/s and copied at "
        f"{measured['copied'] / 1e9:,.0f} GB/s, reads and writes together; the greater one is its limit."
    )
    return measured["bytes_per_second"]


def _export(runner: Runner, plan: Plan, checkpoint: Path, bundle: Path, flags: tuple[str, ...]) -> None:
    runner.say(f"exporting {bundle.name} ...")
    sizes = [f"--sequence={plan.prompt}", f"--max_sequence={plan.capacity}"]
    target = target_of_device(plan.engine_device or Place().name)
    places = [f"--model={checkpoint}", f"--output={bundle}", f"--target={target}", "--verify=none"]
    runner.command([sys.executable, "-m", "tools.export", *places, *sizes, *flags])


def _measured(
    runner: Runner, plan: Plan, checkpoint: Path, bundle: Path, result: SuiteResult, limit: float | None
) -> list[Case]:
    """Returns a row per system of one bundle, and notes what is wanted of them."""
    with contextlib.ExitStack() as stack:
        workers = {engine: stack.enter_context(_start(runner, plan, bundle, engine)) for engine in ENGINES}
        for peer, command in _peers(plan, checkpoint, bundle.name).items():
            workers[peer] = stack.enter_context(Worker(command, peer_environment(), runner.workdir))
        ready = {name: _warm(plan, worker) for name, worker in workers.items()}
        logits = {name: _logits(runner, plan, worker) for name, worker in workers.items()}
        turns = {
            phase: runner.interleaved({name: partial(_ask, plan, worker, phase) for name, worker in workers.items()})
            for phase in (_PROMPT, _STEP)
        }
        memory = {engine: peak_rss(workers[engine].pid) - workers[engine].ready["base_rss_bytes"] for engine in ENGINES}
    for name in [name for name in logits if name != "iree"]:
        nmse = Summary.of([agreement(logits[name], logits["iree"]).nmse])
        result.goals.append(Goal(f"{bundle.name}: NMSE of {name}'s logits to IREE's", "<=", _SAME[bundle.name], nmse))
    cases = [_case(f"{bundle.name}, {name}", turns, ready, memory, name) for name in workers]
    if limit is not None:
        _hold_to_limit(step_bytes(Bundle(bundle)) / limit, turns[_STEP], dict(zip(workers, cases, strict=True)))
        best = max((case.values[_LIMIT] for case in cases if not case.peer), key=lambda shares: shares.median)
        result.goals.append(Goal(f"{bundle.name}: the better engine's steps, share of the limit", ">=", 0.7, best))
    return cases


def _hold_to_limit(least_seconds: float, steps: dict[str, list[Result]], cases: dict[str, Case]) -> None:
    """Adds to each case how close its steps come to reading the weights once at the device's limit."""
    for name, case in cases.items():
        case.values[_LIMIT] = Summary.of(least_seconds * turn["tokens"] / turn["seconds"] for turn in steps[name])


def _peers(plan: Plan, checkpoint: Path, bits: str) -> dict[str, Sequence[str]]:
    """Returns the commands of transformers by name; it computes with weights that are not packed."""
    peer = plan.engine_peer
    if peer is None or peer.settings is None or bits not in _TORCH_DTYPES:
        return {}
    arguments = {
        "weights": str(checkpoint),
        "device": plan.engine_device or "cpu",
        "dtype": _TORCH_DTYPES[bits],
        "tokens": plan.capacity,
    }
    return {
        "transformers": peer.command(compiled=False, **arguments),
        "transformers, compiled": peer.command(compiled=True, **arguments),
    }


def _case(
    title: str,
    turns: dict[str, dict[str, list[Result]]],
    ready: dict[str, float],
    memory: dict[str, int],
    name: str,
) -> Case:
    values = {
        f"{phase}, tokens/s": Summary.of(turn["tokens"] / turn["seconds"] for turn in results[name])
        for phase, results in turns.items()
    }
    values |= {
        f"{phase}, times IREE's": Summary.of_pairs(
            results[name], results["iree"], lambda a, b: b["seconds"] / a["seconds"]
        )
        for phase, results in turns.items()
        if name != "iree"
    }
    values["ready, s"] = Summary.of([ready[name]])
    if name in memory:
        values["peak memory above imports, MiB"] = Summary.of([memory[name] / 2**20])
    return Case(title, values, peer=name not in ENGINES)


def _start(runner: Runner, plan: Plan, bundle: Path, engine: str) -> Worker:
    arguments = json.dumps({"weights": str(bundle), "engine": engine, "device": plan.engine_device})
    # The systems share the device's memory: none may take most of it when it starts.
    shared = environment() | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    return Worker([sys.executable, "-m", "tools.benching.jobs.decode", arguments], shared, runner.workdir)


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
