"""ONNX's operator cases in StableHLO's reference interpreter."""

from tests.conformance._onnx_cases import expressible_cases
from tests.conformance._onnx_modes import failures, run_in_interpreter


def test_interpreter() -> None:
    assert not failures(expressible_cases(), run_in_interpreter)
