"""Suite ``kernels``: what choosing and calling a kernel costs, and what tuning wins."""

from functools import partial
from typing import Final

from tools.benching.suites._figures import Case, Goal, SuiteResult, Table
from tools.benching.suites._plan import Plan
from tools.benching.suites._run import Result, Runner
from tools.benching.suites._stats import Summary

_SELECTION: Final = "tools.benching.jobs.kernel_selection"
_CALLS: Final = "tools.benching.jobs.kernel_calls"
_GAINS: Final = "tools.benching.jobs.kernel_gains"

_MOST_TO_CHOOSE_US: Final = 10.0
_MOST_OVERHEAD: Final = 5.0
# The tuner takes what is less for noise (autotune/tuning/_tuner.py).
_NOISE: Final = 0.03


def kernels(runner: Runner, plan: Plan) -> SuiteResult:
    """Selection, calls, gains, one after the other."""
    result = SuiteResult("kernels")
    selection_report(result, _selection(runner, plan))
    calls_report(result, _calls(runner, plan))
    tunings = {name: _gain(runner, plan, name, tune=plan.kernel_tuning_rounds) for name in plan.kernel_cases}
    jobs = {name: partial(_measured_gain, runner, plan, name) for name in plan.kernel_cases}
    gains_report(result, tunings, runner.interleaved(jobs))
    return result


def _selection(runner: Runner, plan: Plan) -> dict[str, list[Result]]:
    def measured(jax: bool) -> Result:
        return runner.job(_SELECTION, number=plan.calls, repeats=plan.repeats, jax=jax)

    return runner.interleaved({"NumPy alone": lambda: measured(False), "JAX loaded beside it": lambda: measured(True)})


def _calls(runner: Runner, plan: Plan) -> dict[str, list[Result]]:
    jobs = {}
    for device in plan.kernel_devices:
        for rows, inputs, outputs in plan.kernel_calls:
            name = f"{device}, [{rows},{inputs}] by [{outputs},{inputs}]"
            shape = {"device": device, "rows": rows, "inputs": inputs, "outputs": outputs}
            jobs[name] = partial(runner.job, _CALLS, repeats=plan.repeats, sample_s=plan.kernel_sample_s, **shape)
    return runner.interleaved(jobs)


def _gain(runner: Runner, plan: Plan, name: str, **more: float) -> Result:
    cache = str(runner.workdir / "kernels.json")
    return runner.job(_GAINS, case=dict(plan.kernel_cases[name]), cache=cache, device=plan.kernel_devices[0], **more)


def _measured_gain(runner: Runner, plan: Plan, name: str) -> Result:
    return _gain(runner, plan, name, repeats=plan.repeats, sample_s=plan.kernel_sample_s)


def selection_report(result: SuiteResult, results: dict[str, list[Result]]) -> None:
    """Adds the choices' table and goals."""
    cases = []
    for process, rounds in results.items():
        for kernel in rounds[0]:
            name, values = f"{kernel}; {process}", [turn[kernel] for turn in rounds]
            chosen = Summary.of_key(values, "choose_config_us")
            cases.append(Case(name, {"choose": Summary.of_key(values, "choose_us"), "choose_config": chosen}))
            result.goals.append(Goal(f"selection, {name}, µs", "<=", _MOST_TO_CHOOSE_US, chosen))
    hits = {
        (turn[kernel]["tier"], turn[kernel]["provenance"])
        for rounds in results.values()
        for turn in rounds
        for kernel in turn
    }
    result.facts["every choice is a memory hit of what was tuned"] = hits == {("memory", "tuned")}
    result.tables.append(Table("Selection on a memory hit, microseconds, processor time", cases))


def calls_report(result: SuiteResult, results: dict[str, list[Result]]) -> None:
    """Adds the calls' table and goals."""
    cases = []
    for name, rounds in results.items():
        overhead = Summary.of(100 * turn["overhead"] for turn in rounds)
        values = {
            "compiled kernel": Summary.of_key(rounds, "ours_us"),
            "IREE directly": Summary.of_key(rounds, "direct_us"),
            "over it, %": overhead,
            "by iree.runtime's own wrapper": Summary.of_key(rounds, "wrapped_us"),
            "module alone": Summary.of_key(rounds, "module_us"),
        }
        cases.append(Case(name, values))
        result.goals.append(Goal(f"{name}: over IREE directly, %", "<=", _MOST_OVERHEAD, overhead))
    same = all(turn["same"] for rounds in results.values() for turn in rounds)
    result.facts["compiled kernel and IREE give the same bits"] = same
    result.tables.append(Table("A call of a compiled linear kernel, f32, microseconds", cases))


def gains_report(result: SuiteResult, tunings: dict[str, Result], results: dict[str, list[Result]]) -> None:
    """Adds the table and goals of what tuning won.

    Noise is how far the heuristic's configuration was from itself in the worst of the rounds, 3 % at least.
    """
    cases = []
    for name, rounds in results.items():
        gain, itself = Summary.of_key(rounds, "gain"), Summary.of_key(rounds, "itself")
        noise = max(_NOISE, *(abs(turn["itself"] - 1) for turn in rounds))
        values = {
            "tuned, µs": Summary.of_key(rounds, "tuned_us"),
            "heuristic, µs": Summary.of_key(rounds, "heuristic_us"),
            "times faster": gain,
            "heuristic over itself": itself,
            "candidates": Summary.of([tunings[name]["candidates"]]),
            "seconds to tune": Summary.of([tunings[name]["seconds"]]),
        }
        cases.append(Case(name, values))
        result.goals.append(Goal(f"{name}: times faster than the heuristic", ">=", 1 - noise, gain))
    tiers = {turn["tier"] for rounds in results.values() for turn in rounds}
    result.facts["every tuned configuration came from the disk"] = tiers == {"persistent"}
    result.tables.append(Table("Tuned by one process, measured by others, compiled by IREE", cases))
    chosen = "; ".join(f"{name}: {tuning['cfg']}" for name, tuning in tunings.items())
    result.notes.append(f"What tuning chose: {chosen}.")
