"""Suite ``decode``: tokens per second of bundles on the CPU, beside llama.cpp and the speed of the memory."""

from tools.benching.suites._checkpoint import group_folder, suite_folder
from tools.benching.suites._decode_report import Measured, report
from tools.benching.suites._decode_systems import make_systems
from tools.benching.suites._decode_turns import look_at_memory, measure
from tools.benching.suites._figures import SuiteResult
from tools.benching.suites._plan import Plan
from tools.benching.suites._run import Runner


def decode(runner: Runner, plan: Plan) -> SuiteResult:
    """Measures the groups of ``_decode_rows``, one after the other: all of one group are in memory at once."""
    groups: list[Measured] = []
    with suite_folder(runner, plan, "decode", plan.decode_groups) as above:
        for group in plan.decode_groups:
            with group_folder(above, group) as folder:
                systems = make_systems(runner, plan, group, above / "checkpoint", folder)
                if systems:
                    groups.append(Measured(group, systems, *measure(runner, plan, systems)))
                for system in systems:
                    if system.whole:
                        look_at_memory(runner, plan, system)
    return report(plan, groups)
