"""Suite ``recording``: ops per second of recording plus graph building."""

from typing import Any, Final

from tools.benching.suites._figures import Case, Goal, SuiteResult, Table
from tools.benching.suites._lowerings import JAX_JOB
from tools.benching.suites._plan import Plan, config_of
from tools.benching.suites._run import Result, Runner
from tools.benching.suites._stats import Summary

_JOB: Final = "tools.benching.jobs.recording"
_FORWARD: Final = "forward, recorded and verified"
_CHAIN: Final = "a chain of add and exp"
_PEER: Final = "jax.make_jaxpr of the same forward, equations"


def recording(runner: Runner, plan: Plan) -> SuiteResult:
    """The model's forward and a plain chain, beside the peer's tracing of the same forward."""
    config, sequence = config_of(plan.model), plan.sequence
    rounds = runner.interleaved(
        {
            _FORWARD: lambda: runner.job(_JOB, config=config, sequence=sequence, repeats=plan.repeats),
            _CHAIN: lambda: runner.job(_JOB, chain=plan.chain, repeats=plan.repeats),
            _PEER: lambda: _traced(runner, config, sequence),
        }
    )
    cases = [Case(name, _values(results), name == _PEER) for name, results in rounds.items()]
    result = SuiteResult("recording", [Table("Recording plus graph building, thousand ops per second", cases)])
    for name in (_FORWARD, _CHAIN):
        result.goals.append(Goal(f"{name}: ops/s", ">=", 50_000, Summary.of_key(rounds[name], "median")))
    result.goals.append(
        Goal(f"{_FORWARD}, first in a process: ops/s", ">=", 50_000, Summary.of_key(rounds[_FORWARD], "first"))
    )
    return result


def _traced(runner: Runner, config: dict[str, Any], sequence: int) -> Result:
    results = runner.job(JAX_JOB, config=config, sequence=sequence, trace=True, watch=False)
    first, again = results["nodes"] / results["seconds"], results["nodes"] / results["seconds_again"]
    return {"nodes": results["nodes"], "first": first, "median": again, "best": again}


def _values(results: list[Result]) -> dict[str, Summary]:
    values = {
        "ops": Summary.of_key(results, "nodes"),
        "first": Summary.of_key(results, "first", 1e3),
        "repeated, median": Summary.of_key(results, "median", 1e3),
        "repeated, best": Summary.of_key(results, "best", 1e3),
    }
    if "cpu_median" in results[0]:
        values["repeated, per processor second"] = Summary.of_key(results, "cpu_median", 1e3)
    return values
