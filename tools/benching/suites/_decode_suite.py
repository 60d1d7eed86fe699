"""Suite ``decode``: tokens per second of bundles on the CPU, beside the speed at which the machine reads memory."""

import dataclasses
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from compile_hlo.bundle import Bundle, executable_name
from compile_hlo.iree import compile_module, target_named
from lang_core import TensorSpec
from tools.benching.suites._figures import Case, Goal, SuiteResult, Table
from tools.benching.suites._plan import Plan
from tools.benching.suites._run import Result, Runner
from tools.benching.suites._stats import Summary

_STORED: Final = "bf16"
_TARGET: Final = "llvm-cpu"
_BANDWIDTH: Final = "bandwidth"
_SHARE: Final = "of the memory's speed"
_EMBEDDING: Final = "model.embed_tokens.weight"


def decode(runner: Runner, plan: Plan) -> SuiteResult:
    """Every dtype with the tiles of ``compile_hlo/iree/_matvec_tiles.py`` and with the compiler's own."""
    folder = runner.workdir / "decode"
    folder.mkdir()
    try:
        bundles = _bundles(runner, plan, folder)
        jobs = {name: partial(_decode, runner, plan, path) for name, path in bundles.items()}
        probe = partial(
            runner.job, "tools.benching.jobs.bandwidth", bytes=plan.bandwidth_bytes, repeats=plan.bandwidth_repeats
        )
        found = runner.interleaved({_BANDWIDTH: probe, **jobs})
        read = {name: _bytes_per_step(Bundle(path)) for name, path in bundles.items()}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    result = SuiteResult("decode")
    result.tables = [_table(plan, found, read)]
    for case in result.tables[0].cases:
        if case.name in plan.dtypes:
            result.goals.append(Goal(f"{case.name}: of the memory's speed", ">=", 0.9, case.values[_SHARE]))
    result.facts = {f"{name}: logits are finite": all(each["finite"] for each in found[name]) for name in bundles}
    return result


def _bundles(runner: Runner, plan: Plan, folder: Path) -> dict[str, Path]:
    checkpoint = folder / "checkpoint"
    runner.job("tools.benching.jobs.checkpoint", directory=str(checkpoint), sizes=list(plan.decoder), dtype=_STORED)
    bundles = {}
    for dtype in plan.dtypes:
        bundles[dtype] = folder / dtype
        places = [f"--model={checkpoint}", f"--output={bundles[dtype]}", f"--dtype={dtype}"]
        sizes = [f"--sequence={plan.prompt}", f"--max_sequence={plan.prompt + plan.steps}"]
        fixed = [f"--target={_TARGET}", "--verify=none"]
        runner.command([sys.executable, "-m", "tools.export", *places, *sizes, *fixed])
        bundles[f"{dtype}, the compiler's own tiles"] = _with_own_tiles(bundles[dtype])
    return bundles


def _with_own_tiles(bundle: Path) -> Path:
    """The same bundle, compiled without a tuning spec; the archive is the same file."""
    other = bundle.with_name(f"{bundle.name}-own")
    other.mkdir()
    for file in bundle.iterdir():
        if file.name != executable_name(_TARGET):
            os.link(file, other / file.name)
    target = dataclasses.replace(target_named(_TARGET), matvec_tiles=None)
    compile_module(other / "module.mlir", other / executable_name(_TARGET), target)
    return other


def _bytes_per_step(bundle: Bundle) -> int:
    """The weights that a step reads: of an embedding table, which is no head, one row alone."""
    specs = {path: TensorSpec(tuple(each["shape"]), each["dtype"]) for path, each in bundle.config.parameters.items()}
    if not bundle.config.model["tied"]:
        specs.pop(_EMBEDDING)
    return sum(spec.nbytes for spec in specs.values())


def _decode(runner: Runner, plan: Plan, bundle: Path) -> Result:
    return runner.job("tools.benching.jobs.decode", bundle=str(bundle), prompt=plan.prompt, steps=plan.steps)


def _table(plan: Plan, found: Mapping[str, Sequence[Result]], read: Mapping[str, int]) -> Table:
    limit = found[_BANDWIDTH]
    cases = [Case("reading memory, a thread per core", {"GB/s": Summary.of_key(limit, "bytes_per_second", 1e9)})]
    for name, size in read.items():
        rows = found[name]
        share = Summary.of_pairs(
            rows, limit, lambda mine, probe, size=size: mine["tokens_per_second"] * size / probe["bytes_per_second"]
        )
        cases.append(
            Case(
                name,
                {
                    "GB/s": Summary.of(each["tokens_per_second"] * size / 1e9 for each in rows),
                    _SHARE: share,
                    "tokens/s": Summary.of_key(rows, "tokens_per_second"),
                    "tokens/s, best step": Summary.of_key(rows, "best_tokens_per_second"),
                    "prompt tokens/s": Summary.of_key(rows, "prompt_tokens_per_second"),
                    "RSS +MiB": Summary.of_key(rows, "rss_bytes", float(2**20)),
                },
            )
        )
    title = f"{plan.decoder.layers} layers, batch 1: a prompt of {plan.prompt} tokens and {plan.steps} after it"
    return Table(title, cases)
