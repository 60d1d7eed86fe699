"""Faults of XLA: a case of each is wrong where the fault is not avoided."""

from typing import Final

import pytest

from compile_hlo.quirks import FAULTS, QUIRKS, XLA_PARTITIONED, XLA_QUIRKS, Fault
from run_jax import StableHloFunction
from tests.emission._all_cases import CASES_BY_NAME
from tests.emission._support import assert_agrees, eager_results, graph_of, text_of, text_without

_FAULTS: Final = [fault for fault in FAULTS if fault.name == "sum_with_zero"]


@pytest.mark.parametrize("fault", _FAULTS, ids=lambda fault: fault.name)
def test_faults_of_xla_are_there(fault: Fault) -> None:
    for name in fault.cases:
        case = CASES_BY_NAME[name]
        for overrides in (QUIRKS, XLA_QUIRKS, XLA_PARTITIONED):
            right = list(StableHloFunction(text_of([graph_of(case)], overrides=overrides), name)(*case.inputs))
            assert_agrees(right, eager_results(case), case)
        wrong = list(StableHloFunction(text_without(fault, case), name)(*case.inputs))
        with pytest.raises(AssertionError):
            assert_agrees(wrong, eager_results(case), case)
