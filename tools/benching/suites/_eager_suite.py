"""Suite ``eager``: what the eager context costs over NumPy's own calls."""

from typing import Final

from tools.benching.suites._figures import Case, Goal, SuiteResult, Table
from tools.benching.suites._plan import Plan
from tools.benching.suites._run import Runner
from tools.benching.suites._stats import Summary

_JOB: Final = "tools.benching.jobs.eager"


def eager(runner: Runner, plan: Plan) -> SuiteResult:
    """Small arrays, so that the arithmetic takes nearly nothing."""
    jobs = {"eager": lambda: runner.job(_JOB, number=plan.calls, repeats=plan.repeats)}
    rounds = runner.interleaved(jobs)["eager"]
    result = SuiteResult("eager")
    cases = []
    for name in rounds[0]:
        values = [turn[name] for turn in rounds]
        cases.append(
            Case(
                name,
                {
                    "ours": Summary.of_key(values, "ours_us"),
                    "NumPy": Summary.of_key(values, "bare_us"),
                    "overhead": Summary.of_key(values, "overhead_us"),
                    "least overhead": Summary.of_key(values, "least_overhead_us"),
                },
            )
        )
        result.goals.append(Goal(f"{name}: overhead, µs", "<=", 3, Summary.of_key(values, "overhead_us")))
    result.tables = [Table("Microseconds per call, processor time, arrays [3,4] and [4,5] of f32", cases)]
    return result
