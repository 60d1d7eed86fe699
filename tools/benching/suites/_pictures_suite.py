"""Suite ``pictures``: pictures as vectors with a ViT, beside PyTorch and ONNX Runtime."""

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from tools.benching.suites._figures import Case, Goal, SuiteResult, Table
from tools.benching.suites._peer import peer_environment
from tools.benching.suites._plan import Plan
from tools.benching.suites._run import Result, Runner, environment
from tools.benching.suites._stats import Summary
from tools.benching.suites._worker import Worker

_OURS: Final = "tapeline"
_FASTER: Final = 1.1  # times a peer that was asked for
_ALIKE: Final = 1e-3  # greatest difference from a peer, relative to the greatest value


def pictures(runner: Runner, plan: Plan) -> SuiteResult:
    """Exports a ViT of random weights, and lets the bundle and the peers take turns at pictures."""
    result = SuiteResult("pictures")
    above = runner.workdir / "pictures"
    above.mkdir()
    try:
        runner.say("writing and exporting a checkpoint ...")
        model = above / "model"
        runner.job("tools.benching.jobs.picture_checkpoint", directory=str(model), config=dict(plan.picture_config))
        command = [sys.executable, "-m", "tools.export", f"--model={model}", f"--output={above / 'bundle'}"]
        runner.command([*command, "--target=llvm-cpu", "--verify=none"])
        _measure(runner, plan, model, above, result)
    finally:
        shutil.rmtree(above, ignore_errors=True)
    return result


def _measure(runner: Runner, plan: Plan, model: Path, above: Path, result: SuiteResult) -> None:
    """Has every system take the pictures within each round, one per call, and adds the times they take."""
    config, drawn = plan.picture_config, np.random.default_rng(7)
    side, file = config["image_size"], above / "pictures.npy"
    np.save(file, drawn.standard_normal((plan.pictures, 1, config["num_channels"], side, side), dtype=np.float32))
    with contextlib.ExitStack() as stack:
        workers = {_OURS: stack.enter_context(_started(runner, above / "bundle"))}
        workers |= {name: stack.enter_context(worker) for name, worker in _peers(runner, plan, model).items()}
        results = {name: above / f"{number}.npy" for number, name in enumerate(workers)}
        jobs = {
            name: partial(worker.ask, pictures=str(file), file=str(results[name])) for name, worker in workers.items()
        }
        for name, job in jobs.items():
            runner.say(f"warming {name} ...")
            job()
        turns = runner.interleaved(jobs)
        states = {name: np.load(path) for name, path in results.items()}
    cases = [_case(name, turns, plan.pictures) for name in turns]
    result.tables.append(Table(f"{plan.pictures} pictures of {side} x {side} pixels, one per call, f32", cases))
    result.facts["vectors are finite"] = bool(np.isfinite(states[_OURS]).all())
    for name in turns:
        if name != _OURS:
            difference = np.abs(states[name] - states[_OURS]).max() / np.abs(states[name]).max()
            result.facts[f"vectors are those of {name}"] = bool(difference < _ALIKE)
            result.goals.append(Goal(f"pictures/s, times {name}", ">=", _FASTER, _ratio(turns, name)))
    slowest = Summary.of(turn["seconds"] / plan.pictures for turn in turns[_OURS])
    result.goals.append(Goal("seconds per picture", "<=", 1, slowest))
    if plan.picture_peer is not None:
        result.notes.append(plan.picture_peer.about())


def _case(name: str, turns: Mapping[str, Sequence[Result]], count: int) -> Case:
    values = {
        "ms per picture": Summary.of(1e3 * turn["seconds"] / count for turn in turns[name]),
        "ms of processor time": Summary.of(1e3 * turn["cpu_seconds"] / count for turn in turns[name]),
    }
    peer = name != _OURS
    return Case(name, {**values, "tapeline, times it": _ratio(turns, name)} if peer else values, peer=peer)


def _ratio(turns: Mapping[str, Sequence[Result]], name: str) -> Summary:
    return Summary.of_pairs(turns[_OURS], turns[name], lambda ours, theirs: theirs["seconds"] / ours["seconds"])


def _started(runner: Runner, bundle: Path) -> Worker:
    arguments = json.dumps({"bundle": str(bundle)})
    return Worker([sys.executable, "-m", "tools.benching.jobs.pictures", arguments], environment(), runner.workdir)


def _peers(runner: Runner, plan: Plan, model: Path) -> dict[str, Worker]:
    peer = plan.picture_peer
    if peer is None or peer.settings is None:
        return {}
    shared: dict[str, Any] = {"model": str(model), "threads": len(os.sched_getaffinity(0))}
    commands = {name: peer.command(system=system, **shared) for name, system in peer.SYSTEMS.items()}
    return {name: Worker(command, peer_environment(), runner.workdir) for name, command in commands.items()}
