"""Suite ``decode``: tokens per second of bundles on the CPU, beside llama.cpp and the speed of the memory."""

import shutil
from typing import Final

from tools.benching.suites._decode_report import Measured, report
from tools.benching.suites._decode_systems import make_systems
from tools.benching.suites._decode_turns import look_at_memory, measure
from tools.benching.suites._figures import SuiteResult
from tools.benching.suites._plan import Plan
from tools.benching.suites._run import Runner

_STORED: Final = "bf16"


def decode(runner: Runner, plan: Plan) -> SuiteResult:
    """Measures the groups of ``_decode_rows``, one after the other: all of one group are in memory at once."""
    above = runner.workdir / "decode"
    checkpoint = above / "checkpoint"
    above.mkdir()
    groups: list[Measured] = []
    try:
        if any(group.file is None for group in plan.decode_groups):
            runner.say("writing a checkpoint ...")
            sizes = list(plan.decoder)
            runner.job("tools.benching.jobs.checkpoint", directory=str(checkpoint), sizes=sizes, dtype=_STORED)
        for group in plan.decode_groups:
            folder = above / group.bits
            folder.mkdir()
            systems = make_systems(runner, plan, group, checkpoint, folder)
            if systems:
                groups.append(Measured(group, systems, *measure(runner, plan, systems)))
            for system in systems:
                if system.whole:
                    look_at_memory(runner, plan, system)
            shutil.rmtree(folder)
    finally:
        shutil.rmtree(above, ignore_errors=True)
    return report(plan, groups)
