"""Faults of compile_hlo/quirks: those of the interpreter are there still, and the table of README.md is right."""

import re
from pathlib import Path
from typing import Final

import pytest

from compile_hlo.emit import NO_OVERRIDES
from compile_hlo.portable import interpret as interpret_file
from compile_hlo.quirks import FAULTS, INTERPRETER, QUIRKS, XLA_QUIRKS, Fault, overrides_of
from lang_core import VerificationError
from run_jax import StableHloFunction
from tests.emission._all_cases import ALL_CASES, CASES_BY_NAME
from tests.emission._support import assert_agrees, eager_results, graph_of, interpret, parsed, text_of, text_without

_README: Final = Path(__file__).parents[2] / "compile_hlo" / "quirks" / "README.md"


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if INTERPRETER in fault.targets], ids=lambda f: f.name)
def test_faults_of_the_interpreter_are_there(fault: Fault, tmp_path: Path) -> None:
    for name in fault.cases:
        path = tmp_path / "module.mlir"
        path.write_text(text_without(fault, CASES_BY_NAME[name]))
        with pytest.raises(VerificationError, match="the process that ran it died"):
            interpret_file(path, CASES_BY_NAME[name].inputs)


def test_an_update_beside_a_reshape_is_wrong_on_xla_and_is_avoided() -> None:
    fault = next(fault for fault in FAULTS if fault.name == "update_beside_reshape")
    for name in fault.cases:
        case = CASES_BY_NAME[name]
        wanted = eager_results(case)
        with pytest.raises(AssertionError):
            assert_agrees(StableHloFunction(text_without(fault, case), name)(*case.inputs), wanted, case)
        for overrides in (QUIRKS, XLA_QUIRKS):
            avoided = text_of([graph_of(case)], overrides=overrides)
            assert_agrees(StableHloFunction(avoided, name)(*case.inputs), wanted, case)


def test_plain_stablehlo_of_all_cases_verifies() -> None:
    parsed(text_of(map(graph_of, ALL_CASES), overrides=NO_OVERRIDES))


def test_plain_stablehlo_means_what_the_eager_context_does() -> None:
    """Runs what faults of devices change, as it is without them."""
    for fault in FAULTS:
        for name in fault.cases if INTERPRETER not in fault.targets else ():
            case = CASES_BY_NAME[name]
            assert_agrees(interpret(graph_of(case), case.inputs, overrides=NO_OVERRIDES), eager_results(case), case)


def test_a_fault_changes_the_text_of_its_cases() -> None:
    for fault in FAULTS:
        for name in fault.cases:
            assert text_without(fault, CASES_BY_NAME[name]) != text_of([graph_of(CASES_BY_NAME[name])]), (
                fault.name,
                name,
            )


def test_overrides_of_one_point_are_called_in_their_order() -> None:
    case = CASES_BY_NAME["cast_f64_bf16"]
    assert text_of([graph_of(case)], overrides=overrides_of(FAULTS)) == text_of([graph_of(case)], overrides=QUIRKS)


def test_the_readme_has_a_row_for_each_fault() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \| (.*?) \| (.*?) \|$", _README.read_text(), re.MULTILINE)
    assert len(rows) == len(FAULTS)
    for fault, (*row, cases) in zip(FAULTS, rows, strict=True):
        assert row == [fault.name, fault.summary, ", ".join(fault.targets), fault.version]
        assert cases == " ".join(f"`{name}`" for name in fault.cases) or not fault.cases
