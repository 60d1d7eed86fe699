"""Runs collected tests again and again in this process, which pytest alone does not do."""

import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[2]
FILES: Final = (
    "lang_core/ops/_control_test.py",
    "lang_core/ops/_refusals_math_test.py",
    "lang_core/ops/_refusals_moves_test.py",
    "lang_core/ops/_refusals_packed_test.py",
    "lang_core/ops/_shape_test.py",
    "tests/emission/devices_test.py",
    "tests/emission/interpreter_test.py",
    "tests/differential/agreement_test.py",
    "compile_dag/gradient/_api_test.py",
    "compile_dag/gradient/_composites_test.py",
    "compile_dag/gradient/_contract_test.py",
    "compile_dag/gradient/_control_test.py",
    "compile_dag/gradient/_elementwise_test.py",
    "compile_dag/gradient/_gated_delta_test.py",
    "compile_dag/gradient/_indexing_test.py",
    "autotune/_gradient_rule_test.py",
    "compile_dag/gradient/_reduce_test.py",
    "compile_dag/gradient/_shape_test.py",
    "tests/gradients/attention_test.py",
)


class Runner:
    """The tests of ``FILES``, by id."""

    def __init__(self, items: Sequence[pytest.Item]) -> None:
        self._items = {item.nodeid: item for item in items}
        self._order = list(self._items)
        self._right: dict[str, bool] = {}
        self._jax: dict[tuple[str, int], Any] = {}
        self._calls = 0
        self._now = ""
        self._failed = False
        self.seconds: dict[str, float] = {}
        self._keep_what_jax_says()

    def ids(self, *selectors: str) -> list[str]:
        """The tests whose id holds one of the selectors; in the order of these."""
        return list(dict.fromkeys(test for selector in selectors for test in self._order if selector in test))

    def passes(self, test: str) -> bool:
        """Runs a test as things are now."""
        self._calls, self._now = 0, test
        began = time.perf_counter()
        self._failed = False
        item = self._items[test]
        item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
        self.seconds.setdefault(test, time.perf_counter() - began)
        return not self._failed

    def note(self, report: pytest.TestReport) -> None:
        """Takes what pytest says of the test that runs."""
        self._failed = self._failed or report.failed

    def passes_unbroken(self, test: str) -> bool:
        """Returns whether a test passes if nothing is broken; run once."""
        if test not in self._right:
            self._right[test] = self.passes(test)
        return self._right[test]

    def _keep_what_jax_says(self) -> None:
        """The gradients of jax do not depend on our rules, and take most of the time."""
        checks: Any = sys.modules["compile_dag.gradient._checks"]
        ask = checks.jax_gradients

        def kept(*args: Any) -> Any:
            self._calls += 1
            key = self._now, self._calls
            if key not in self._jax:
                self._jax[key] = ask(*args)
            return self._jax[key]

        checks.jax_gradients = kept


class _Plugin:
    """Hands the collected tests to ``main`` in place of pytest's own loop."""

    def __init__(self, main: Callable[[Runner], None]) -> None:
        self._main = main
        self._runner: Runner | None = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Says what cannot be collected: there is no terminal plugin to do so."""
        if report.failed:
            print(f"{report.nodeid or 'the tests'} cannot be collected:\n{report.longrepr}", file=sys.stderr)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Tells the runner."""
        if self._runner is not None:
            self._runner.note(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Runs ``main``; True: there is nothing else to run."""
        if session.testsfailed:
            raise session.Interrupted("the tests cannot be collected")
        self._runner = Runner(session.items)
        self._main(self._runner)
        return True


def with_tests(main: Callable[[Runner], None], files: Iterable[str] = FILES) -> int:
    """Collects the tests of the files and calls ``main`` with them; returns pytest's exit code."""
    os.environ["TAPELINE_LONG"] = "1"  # all their cases
    arguments = ["-p", "no:terminal", "-p", "no:faulthandler", "-p", "no:cacheprovider", "--import-mode=importlib"]
    # As in build_defs/pytest_main.py: folders above a test may lack their __init__.py, or have one of Bazel's making.
    arguments += ["-o", "consider_namespace_packages=true"]
    arguments += ["--rootdir", str(ROOT), "--capture=no", *(str(ROOT / file) for file in files)]
    return int(pytest.main(arguments, plugins=[_Plugin(main)]))
