"""ONNX's operator cases in StableHLO's reference interpreter."""

from tests.conformance._onnx_cases import expressible_cases
from tests.conformance._onnx_modes import failures, run_in_interpreter
from tests.conformance._onnx_selection import interpreted_cases


def test_interpreter() -> None:
    assert not failures(interpreted_cases(), run_in_interpreter)


def test_each_op_is_interpreted() -> None:
    assert {case.kind for case in interpreted_cases()} == {case.kind for case in expressible_cases()}
