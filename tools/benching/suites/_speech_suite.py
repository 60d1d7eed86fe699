"""Suite ``speech``: transcriptions of a Whisper, in f32 and with packed weights, beside faster-whisper."""

import contextlib
import json
import os
import shutil
import sys
import wave
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

_LANGUAGE: Final = "en"
_FASTER: Final = 1.2  # times the peer that was asked for
_RATE: Final = 16000
_SYSTEMS: Final[Mapping[str, Sequence[str]]] = {
    "tapeline, f32": (),
    "tapeline, Q8_0 and x in 8 bits": ("--quantize=Q8_0", "--activations=q8"),
}
_PEERS: Final = {"faster-whisper, float32": "float32", "faster-whisper, int8": "int8"}


def speech(runner: Runner, plan: Plan) -> SuiteResult:
    """Exports a Whisper, and lets the bundles and the peer take turns at a file."""
    result = SuiteResult("speech")
    above = runner.workdir / "speech"
    above.mkdir()
    try:
        job = {"width": 64, "layers": 1} if plan.speech_model is None else {"model": str(plan.speech_model)}
        runner.job("tools.benching.jobs.whisper_checkpoint", directory=str(above / "model"), **job)
        for number, flags in enumerate(_SYSTEMS.values()):
            runner.say("exporting the model ...")
            command = [sys.executable, "-m", "tools.export", f"--model={above / 'model'}", *flags]
            runner.command([*command, f"--output={above / str(number)}", "--target=llvm-cpu", "--verify=none"])
        _measure(runner, plan, above, result)
    finally:
        shutil.rmtree(above, ignore_errors=True)
    return result


def _measure(runner: Runner, plan: Plan, above: Path, result: SuiteResult) -> None:
    """Has every system transcribe the file within each round, and adds the times they take."""
    file = plan.speech_file or _written(above / "tones.wav")
    with contextlib.ExitStack() as stack:
        workers = {
            name: stack.enter_context(_started(runner, above / str(number))) for number, name in enumerate(_SYSTEMS)
        }
        workers |= {name: stack.enter_context(worker) for name, worker in _peers(runner, plan).items()}
        for name, worker in workers.items():
            runner.say(f"warming {name} ...")
            worker.ask(file=str(file))
        turns = runner.interleaved({name: partial(worker.ask, file=str(file)) for name, worker in workers.items()})
    first, packed = _SYSTEMS
    ratios = {name: _ratio(turns, packed if "int8" in name else first, name) for name in turns if name in _PEERS}
    cases = [_case(name, turns[name], ratios.get(name)) for name in turns]
    result.tables.append(Table(f"{_seconds(file):.1f} s of sound", cases))
    result.facts["a system gives one text"] = all(len({turn["text"] for turn in turns[name]}) == 1 for name in turns)
    result.goals += [Goal(f"times {name}", ">=", _FASTER, ratio) for name, ratio in ratios.items()]
    result.goals.append(Goal("seconds per second of sound", "<=", 1, _pace(turns[first], file)))
    if plan.speech_model is None:
        result.notes.append("Random weights of one layer, and tones: `--speech_model` and `--speech_file` name others.")
    else:
        result.notes += [f"{name}: {turns[name][0]['text'].strip()}" for name in turns]
    if plan.speech_peer is not None:
        result.notes.append(plan.speech_peer.about())


def _case(name: str, turns: Sequence[Result], ratio: Summary | None) -> Case:
    values = {
        "s": Summary.of(turn["seconds"] for turn in turns),
        "s of processor time": Summary.of(turn["cpu_seconds"] for turn in turns),
    }
    return Case(name, values if ratio is None else {**values, "tapeline, times it": ratio}, peer=ratio is not None)


def _ratio(turns: Mapping[str, Sequence[Result]], ours: str, peer: str) -> Summary:
    return Summary.of_pairs(turns[ours], turns[peer], lambda one, other: other["seconds"] / one["seconds"])


def _pace(turns: Sequence[Result], file: Path) -> Summary:
    return Summary.of(turn["seconds"] / _seconds(file) for turn in turns)


def _seconds(file: Path) -> float:
    with wave.open(str(file)) as sound:
        return sound.getnframes() / sound.getframerate()


def _written(path: Path) -> Path:
    """Writes five seconds of tones that rise."""
    times = np.arange(5 * _RATE) / _RATE
    with wave.open(str(path), "wb") as sound:
        sound.setparams((1, 2, _RATE, 0, "NONE", ""))
        sound.writeframes((8000 * np.sin(2 * np.pi * (200 + 150 * times) * times)).astype("<i2").tobytes())
    return path


def _started(runner: Runner, bundle: Path) -> Worker:
    arguments = json.dumps({"bundle": str(bundle), "language": _LANGUAGE})
    return Worker([sys.executable, "-m", "tools.benching.jobs.transcribe", arguments], environment(), runner.workdir)


def _peers(runner: Runner, plan: Plan) -> dict[str, Worker]:
    peer, threads = plan.speech_peer, len(os.sched_getaffinity(0))
    if peer is None or peer.settings is None or plan.speech_model is None:
        return {}
    shared: dict[str, Any] = {"model": str(plan.speech_model), "threads": threads, "language": _LANGUAGE}
    commands = {name: peer.command(type=kind, **shared) for name, kind in _PEERS.items()}
    return {name: Worker(command, peer_environment(), runner.workdir) for name, command in commands.items()}
