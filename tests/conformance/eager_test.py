"""ONNX's operator cases with NumPy: computed at once; recorded, then evaluated."""

from tests.conformance._onnx_cases import expressible_cases
from tests.conformance._onnx_modes import failures, run_eagerly, run_recorded


def test_eager() -> None:
    assert not failures(expressible_cases(), run_eagerly)


def test_recorded_and_evaluated() -> None:
    assert not failures(expressible_cases(), run_recorded)
