"""The mutation check finds what it is to find, on a few mutants; ``mutation_check`` runs them all."""

import contextlib
import sys
from typing import Final

import pytest

from tests.mutation import mutation_check
from tests.mutation._children import survivors
from tests.mutation._equivalent import EQUIVALENT
from tests.mutation._mutant import Mutant
from tests.mutation._runner import Runner, with_tests

# Ends itself at "dies", never ends at "hangs", and lets nothing but "lives" survive.
_CHILD: Final = """
import os, signal, sys, time
for line in sys.stdin:
    name = line.strip()
    print("trying:", name, flush=True)
    if name == "fails":
        sys.exit(3)
    if name == "dies":
        os.kill(os.getpid(), signal.SIGFPE)
    if name == "hangs":
        time.sleep(600)
    if name.startswith("lives"):
        print("survivor:", name, flush=True)
"""


def test_a_sample_of_mutants_is_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        mutation_check.main(
            ["--here", "--only", "^(shape|constraint|emission)/(add|concat|dot_general)/", "--every", "7"]
        )
        == 0
    )
    assert " 0 survivors" in capsys.readouterr().out


def test_what_nothing_notices_survives(capsys: pytest.CaptureFixture[str]) -> None:
    def run(runner: Runner) -> None:
        check = mutation_check.Check(runner)
        check.attempt(Mutant("constraint/add/nothing is broken", contextlib.nullcontext, ("test_elementwise_c1[add]",)))
        assert check.survivors == ["constraint/add/nothing is broken"]

    with_tests(run, ["lang_core/ops/_refusals_math_test.py", "compile_dag/gradient/_shape_test.py"])
    assert "survivor: constraint/add/nothing is broken" in capsys.readouterr().out


def test_a_rule_that_no_mutant_names_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert mutation_check.main(["--only", "^constraint/no_such_op/"]) == 1
    assert "0 mutants" in capsys.readouterr().out


def test_every_equivalent_has_its_reason() -> None:
    assert all(why for _, why in EQUIVALENT)


def test_a_mutant_that_ends_its_process_or_never_ends_is_noticed() -> None:
    names = ["a", "dies", "lives", "hangs", "b", "lives too"]
    assert list(survivors(names, (sys.executable, "-c", _CHILD), 5.0)) == ["lives", "lives too"]


def test_a_child_that_fails_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="the child that tries fails exits with 3"):
        list(survivors(["a", "fails"], (sys.executable, "-c", _CHILD), 5.0))
