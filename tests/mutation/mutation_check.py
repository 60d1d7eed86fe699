"""Breaks every rule, one at a time, and shows that a test fails: ``bazel run //tests/mutation:mutation_check``.

Rules are the shape rules, the constraints and the eager rules of the op table, the emission rules and the gradient
rules. What no test notices is printed, and the exit code is 1 then. ``--only TEXT`` takes the mutants whose name holds
it, ``--every N`` each N-th.
"""

import argparse
import itertools
import os
import re
import sys
from collections.abc import Sequence
from typing import Any, Final

import pytest

from tests.emission._device_cases import DEVICE_CASES
from tests.mutation._children import SURVIVOR, TRYING, survivors
from tests.mutation._emission_rules import emission_mutants
from tests.mutation._equivalent import reason
from tests.mutation._gradient_rules import TABLES, Listening, gradient_mutants
from tests.mutation._mutant import Mutant, Replaced
from tests.mutation._runner import Runner, with_tests
from tests.mutation._table_rules import constraint_mutants, eager_mutants, shape_mutants

_CHILD: Final = (sys.executable, "-m", "tests.mutation.mutation_check", "--named")
# What the compiler makes of a rule, where the interpreter cannot tell.
_DEVICES: Final = ("local-task", "vmvx")
_DEVICE_DTYPES: Final = ("f32", "i32", "bool")


class Check:
    """Tries mutants; counts.

    Attributes:
        survivors: the names of those that no test noticed.
        total: how many were tried.
        equivalent: how many of them give the same as the rule itself.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.survivors: list[str] = []
        self.total = 0
        self.equivalent = 0

    def attempt(self, mutant: Mutant) -> None:
        """Runs a mutant's tests until one fails."""
        if self._counted(mutant) and not self._killed(mutant):
            self._survives(mutant.name)

    def attempt_in_children(self, mutants: Sequence[Mutant]) -> None:
        """Tries mutants that may end the process."""
        names = [mutant.name for mutant in mutants if self._counted(mutant)]
        for name in survivors(names, _CHILD):
            self._survives(name)

    def _counted(self, mutant: Mutant) -> bool:
        """Returns whether a mutant can be noticed at all."""
        self.total += 1
        if reason(mutant.name) is None:
            return True
        self.equivalent += 1
        return False

    def _survives(self, name: str) -> None:
        self.survivors.append(name)
        print(SURVIVOR + name, flush=True)

    def _killed(self, mutant: Mutant) -> bool:
        for test in self._runner.ids(*mutant.tests, *_wider(mutant)):
            if self._noticed_by(test, mutant, once=True):
                return True
        return mutant.name.startswith("emission/") and self._killed_on_device(mutant)

    def _noticed_by(self, test: str, mutant: Mutant, once: bool) -> bool:
        if not (self._runner.passes_unbroken(test) if once else self._runner.passes(test)):
            raise RuntimeError(f"{test} fails although nothing is broken")
        with mutant.applied():
            return not self._runner.passes(test)

    def _killed_on_device(self, mutant: Mutant) -> bool:
        """Returns whether the tests on a device notice a mutant; only the op's cases are compiled."""
        _, op, _ = mutant.name.split("/", 2)
        holder: Any = sys.modules["tests.emission.devices_test"]
        for device, dtype in itertools.product(_DEVICES, _DEVICE_DTYPES):
            cases = tuple(case for case in DEVICE_CASES if (case.op, case.dtype.name) == (op, dtype))
            with Replaced([(holder, "DEVICE_CASES", cases), (holder, "is_sampled", _every_case)]):
                for test in self._runner.ids(f"test_ops_run_right[{device}]" if cases else "no test"):
                    if self._noticed_by(test, mutant, once=False):
                        return True
        return False


def _every_case(_case: object, _device: str) -> bool:
    """Takes the place of the sample of cases that a device runs by default."""
    return True


def _wider(mutant: Mutant) -> Sequence[str]:
    """The tests that run if no likely one has noticed."""
    kind, op, _ = mutant.name.split("/", 2)
    if kind == "shape":
        return (f"test_{op}_c", f"eager_agrees_with_jax[{op}]")
    if kind == "emission":
        return (f"interpreter_agrees_with_jax[{op}]",)
    return ()


def listen(runner: Runner) -> tuple[dict[str, set[int]], dict[str, tuple[str, ...]]]:
    """Runs the tests of gradients, and notes which of them ask which rules."""
    asked: dict[str, set[int]] = {f"{kind}/{name}": set() for kind, table in TABLES for name in table}
    tests: dict[str, list[str]] = {}
    for test in runner.ids("compile_dag/gradient", "tests/gradients"):
        listeners = {
            f"{kind}/{name}": (table, name, Listening(rule)) for kind, table in TABLES for name, rule in table.items()
        }
        with Replaced(listeners.values()):
            if not runner.passes_unbroken(test):
                raise RuntimeError(f"{test} fails although nothing is broken")
        for key, (_, _, listener) in listeners.items():
            if listener.operands:
                asked[key] |= listener.operands
                tests.setdefault(key, []).append(test)
    return asked, {key: tuple(sorted(noticing, key=runner.seconds.__getitem__)) for key, noticing in tests.items()}


def _named() -> list[Mutant]:
    known = {mutant.name: mutant for mutant in emission_mutants()}
    return [known[line.rstrip("\n")] for line in sys.stdin]


def _chosen(only: str, runner: Runner) -> list[Mutant]:
    """The mutants whose name holds the regular expression."""
    makers = [shape_mutants, constraint_mutants, eager_mutants, emission_mutants]
    mutants = [mutant for maker in makers for mutant in maker()]
    if not only or re.search(only, "gradient/composite"):
        mutants += gradient_mutants(*listen(runner))
    return [mutant for mutant in mutants if re.search(only, mutant.name)]


def _processor_seconds() -> float:
    """Returns the processor seconds of this process and its children."""
    return sum(os.times()[:4])


def main(argv: Sequence[str]) -> int:
    """Runs the check; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a regular expression that a mutant's name holds")
    parser.add_argument("--every", type=int, default=1, help="each N-th mutant")
    parser.add_argument("--here", action="store_true", help="start no child, so that a mutant may end the process")
    parser.add_argument(
        "--named", action="store_true", help="read the mutants' names, of emission rules; implies --here"
    )
    flags = parser.parse_args(argv)
    result: list[Any] = []

    def run(runner: Runner) -> None:
        check = Check(runner)
        result.append(check)
        chosen = _named() if flags.named else _chosen(flags.only, runner)[:: flags.every]
        elsewhere = (
            []
            if flags.named or flags.here
            else [candidate for candidate in chosen if candidate.name.startswith("emission/")]
        )
        for mutant in chosen:
            if flags.named:
                print(TRYING + mutant.name, flush=True)
            if mutant not in elsewhere:
                check.attempt(mutant)
        check.attempt_in_children(elsewhere)

    status = with_tests(run)
    if not result or status in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR):
        return status or 1
    check = result[0]
    killed = check.total - check.equivalent - len(check.survivors)
    print(
        f"{check.total} mutants: {killed} killed, {check.equivalent} equivalent, {len(check.survivors)} survivors, "
        f"{_processor_seconds():.0f} s of a processor"
    )
    return 1 if check.survivors or not check.total else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
