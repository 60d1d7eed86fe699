"""The systems that take turns in the suite ``decode``: bundles and GGUF files of one checkpoint, each in a process."""

import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from lang_core import TensorSpec
from run_iree import compile_module, target_named
from tapeline.bundle import ARCHIVE, MARK, REPORT, Bundle, executable_name, sha256_of
from tools.benching.suites._decode_rows import Group, Row
from tools.benching.suites._peer import peer_environment
from tools.benching.suites._plan import Plan
from tools.benching.suites._run import Runner, environment
from tools.benching.suites._worker import Worker

_TARGET: Final = "llvm-cpu"
_EMBEDDING: Final = "model.embed_tokens.weight"


@dataclass(frozen=True, slots=True)
class System:
    """One that is measured.

    Attributes:
        name: of the case.
        row: which export it is; None of a peer.
        kind: the type of a peer's file; None of ours.
        weights: a bundle, or a GGUF file.
        step_bytes: the weights that a step reads: of an embedding table, which is no head, one row alone.
        once: figures that do not change from round to round, by name.
    """

    name: str
    row: Row | None
    kind: str | None
    weights: Path
    step_bytes: int
    once: dict[str, float] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """True if everything is measured of it: not of peers, nor where only the speed is looked at."""
        return self.is_judged and not (self.row is not None and self.row.stored)

    @property
    def is_judged(self) -> bool:
        """True if it is held to goals: not peers, nor bundles compiled otherwise than users get them."""
        return self.row is not None and not self.row.own_code


def make_systems(runner: Runner, plan: Plan, group: Group, checkpoint: Path, folder: Path) -> list[System]:
    """Exports a group's bundles and writes its GGUF files, which leaves all of them in the page cache."""
    has_peer = plan.peer is not None and plan.peer.settings is not None
    stored = {row.peer for row in group.rows if row.stored}
    peers = {kind: _peer(runner, kind, group, checkpoint, folder) for kind in group.peers if has_peer or kind in stored}
    systems: list[System] = []
    for row in group.rows:
        runner.say(f"exporting {row.name} ...")
        model = peers[row.peer].weights if row.stored and row.peer is not None else checkpoint
        systems.append(_own_code(row, systems, folder) if row.own_code else _export(runner, plan, row, model, folder))
    return [*systems, *peers.values()] if has_peer else systems


def start(runner: Runner, plan: Plan, system: System) -> Worker:
    """Starts the process of a system."""
    if system.kind is None:
        arguments = json.dumps({"weights": str(system.weights)})
        return Worker([sys.executable, "-m", "tools.benching.jobs.decode", arguments], environment(), runner.workdir)
    assert plan.peer is not None
    threads = len(os.sched_getaffinity(0))
    command = plan.peer.command(weights=str(system.weights), threads=threads, tokens=plan.capacity)
    return Worker(command, peer_environment(), runner.workdir)


def start_all(runner: Runner, plan: Plan, systems: list[System], stack: contextlib.ExitStack) -> Mapping[str, Worker]:
    """Starts all of a group, until the stack ends."""
    workers = {}
    for system in systems:
        workers[system.name] = stack.enter_context(start(runner, plan, system))
        system.once["load_seconds"] = workers[system.name].ready["load_seconds"]
    return workers


def cache_bytes(bundle: Bundle) -> int:
    """Returns the bytes of the caches of one sequence."""
    return sum(argument.spec.nbytes for argument in bundle.entry_point("prefill").arguments if argument.donated)


def _export(runner: Runner, plan: Plan, row: Row, model: Path, folder: Path) -> System:
    output = folder / row.name
    places = [f"--model={model}", f"--output={output}", f"--target={_TARGET}", "--verify=none"]
    sizes = [f"--sequence={plan.prompt}", f"--max_sequence={plan.capacity}"]
    runner.command([sys.executable, "-m", "tools.export", *places, *sizes, *row.flags])
    report: dict[str, Any] = json.loads((output / REPORT).read_text())
    return System(
        row.name,
        row,
        None,
        output,
        step_bytes(Bundle(output)),
        {"compile_seconds": report["phases"]["compile"]["seconds"]},
    )


def _own_code(row: Row, made: list[System], folder: Path) -> System:
    """An earlier row's bundle, compiled without tuning spec and kernels; the archive is the same file."""
    like = next(system for system in made if system.row is not None and system.row.flags == row.flags)
    output = folder / row.name
    output.mkdir()
    for file in like.weights.iterdir():
        if file.name not in (executable_name(_TARGET), MARK):
            os.link(file, output / file.name)
    target, executable = (
        dataclasses.replace(target_named(_TARGET), matvec_tiles=None, kernels=None),
        output / executable_name(_TARGET),
    )
    compile_module(output / "module.mlir", executable, target)
    description: dict[str, Any] = json.loads((like.weights / MARK).read_text())
    description["sha256"][executable.name] = sha256_of(executable)
    (output / MARK).write_text(json.dumps(description))
    return System(row.name, row, None, output, like.step_bytes)


def step_bytes(bundle: Bundle) -> int:
    """Returns the bytes of the weights that a step reads: of an embedding table, which is no head, one row alone."""
    sizes = {
        path: TensorSpec(tuple(record["shape"]), record["dtype"]).nbytes
        for path, record in bundle.config.parameters.items()
    }
    if not bundle.config.model["tied"]:
        sizes.pop(_EMBEDDING)
    return sum(sizes.values())


def _peer(runner: Runner, kind: str, group: Group, checkpoint: Path, folder: Path) -> System:
    """Returns the peer on a group's file, whose weights a step reads whole, or on a file that is written."""
    if group.file is None:
        return _gguf(runner, kind, checkpoint, folder)
    return System("llama.cpp", None, kind, group.file, group.file.stat().st_size)


def _gguf(runner: Runner, kind: str, checkpoint: Path, folder: Path) -> System:
    runner.say(f"writing a GGUF file of type {kind} ...")
    file = folder / f"{kind}.gguf"
    made = runner.job("tools.benching.jobs.gguf_file", checkpoint=str(checkpoint), output=str(file), type=kind)
    return System(f"llama.cpp {kind}", None, kind, file, made["step_bytes"])


def weights_bytes(system: System) -> int:
    """Returns the bytes of the weights on the disk, those of the embedding too."""
    return (system.weights / ARCHIVE if system.kind is None else system.weights).stat().st_size
