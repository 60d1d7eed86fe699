"""Breaks every rule, one at a time, and shows that a test fails: ``bazel run //tests/mutation:mutation_check``.

Rules are the shape rules, the constraints and the eager rules of the op table, the emission rules and the gradient
rules. What no test notices is printed, and the exit code is 1 then. ``--only TEXT`` takes the mutants whose name holds
it, ``--every N`` each N-th.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from tests.mutation._emission_rules import emission_mutants
from tests.mutation._equivalent import reason
from tests.mutation._gradient_rules import TABLES, Listening, gradient_mutants
from tests.mutation._mutant import Mutant, Replaced
from tests.mutation._runner import Runner, with_tests
from tests.mutation._table_rules import constraint_mutants, eager_mutants, shape_mutants


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
        self.total += 1
        if reason(mutant.name) is not None:
            self.equivalent += 1
        elif not (self._dies if _may_die(mutant) else self._killed)(mutant):
            self.survivors.append(mutant.name)
            print("survivor:", mutant.name, flush=True)

    def _dies(self, mutant: Mutant) -> bool:
        """Tries it in a process of its own."""
        command = [
            sys.executable,
            "-m",
            "tests.mutation.mutation_check",
            "--alone",
            "--only",
            f"^{re.escape(mutant.name)}$",
        ]
        path = os.pathsep.join(filter(None, sys.path))
        child = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, check=False)
        if child.returncode not in (0, 1, -signal.SIGFPE):
            raise RuntimeError(f"{mutant.name}: {child.stderr.decode()[-2000:]}")
        return child.returncode != 1

    def _killed(self, mutant: Mutant) -> bool:
        for test in self._runner.ids(*mutant.tests, *_wider(mutant)):
            if not self._runner.passes_unbroken(test):
                raise RuntimeError(f"{test} fails although nothing is broken")
            with mutant.applied():
                if not self._runner.passes(test):
                    return True
        return False


def _may_die(mutant: Mutant) -> bool:
    """Whether the reference interpreter may divide integers by 0, which ends its process."""
    return mutant.name.startswith("emission/rem/") and "--alone" not in sys.argv


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
    for test in runner.ids("compile_dag/gradient"):
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
    return asked, {key: tuple(sorted(found, key=runner.seconds.__getitem__)) for key, found in tests.items()}


def main(argv: Sequence[str]) -> int:
    """Runs the check; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a regular expression that a mutant's name holds")
    parser.add_argument("--every", type=int, default=1, help="each N-th mutant")
    parser.add_argument("--alone", action="store_true", help="let a mutant that may end the process do so")
    flags = parser.parse_args(argv)
    result: list[Any] = []

    def run(runner: Runner) -> None:
        check = Check(runner)
        result.append(check)
        makers = [shape_mutants, constraint_mutants, eager_mutants, emission_mutants]
        mutants = [mutant for maker in makers for mutant in maker()]
        if not flags.only or re.search(flags.only, "gradient/composite"):
            mutants += gradient_mutants(*listen(runner))
        chosen = [mutant for mutant in mutants if re.search(flags.only, mutant.name)][:: flags.every]
        for mutant in chosen:
            check.attempt(mutant)

    began = time.process_time()
    status = with_tests(run)
    if not result:
        return status or 1
    check = result[0]
    killed = check.total - check.equivalent - len(check.survivors)
    print(
        f"{check.total} mutants: {killed} killed, {check.equivalent} equivalent, {len(check.survivors)} survivors, "
        f"{time.process_time() - began:.0f} s"
    )
    return 1 if check.survivors or not check.total else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
