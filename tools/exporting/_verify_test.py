import numpy as np
import pytest

from lang_core import VerificationError
from tools.exporting._verify import compared

_RNG = np.random.default_rng(4)
_TRUTH = _RNG.standard_normal((3, 40))


def _near(distance: float) -> np.ndarray:
    return _TRUTH + distance * _RNG.standard_normal(_TRUTH.shape)


def test_what_differs_as_rounding_does_is_as_near_to_f32_as_the_eager_context() -> None:
    """Two computations of 16 bits, each off by 3 %: they differ by more than is allowed."""
    asked: list[str] = []

    def exact(name: str) -> dict[str, np.ndarray]:
        asked.append(name)
        return {"a": _TRUTH, "b": _TRUTH}

    found, expected = {"a": _near(0.03), "b": _near(0.03)}, {"a": _near(0.03), "b": _near(0.03)}
    rows = compared("vmvx", "decode", found, expected, "bf16", exact)
    assert asked == ["decode"]
    for row in rows:
        assert row["max_rel"] > 0.03
        assert row["to_f32"]["nmse"] == pytest.approx(row["eager_to_f32"]["nmse"], rel=0.5)


def test_what_is_further_from_f32_disagrees() -> None:
    message = (
        r"result 'a' disagrees .*3e-02 is allowed for bf16\), cosine 0.99\d+, NMSE to f32 0.0\d+, where the eager "
    )
    with pytest.raises(VerificationError, match=message):
        compared("vmvx", "decode", {"a": _near(0.12)}, {"a": _near(0.03)}, "bf16", lambda _: {"a": _TRUTH})
    broken = _near(0.03)
    broken[1, 2] = np.nan
    with pytest.raises(VerificationError, match="result 'a' disagrees"):
        compared("vmvx", "decode", {"a": broken}, {"a": _near(0.03)}, "bf16", lambda _: {"a": _TRUTH})


def test_where_there_is_no_f32_the_tolerance_decides() -> None:
    with pytest.raises(VerificationError, match=r"cosine 0.99\d+: the bundle was not written"):
        compared("vmvx", "decode", {"a": _near(0.03)}, {"a": _near(0.03)}, "f32")
    (row,) = compared("vmvx", "decode", {"a": _TRUTH}, {"a": _TRUTH * (1 + 1e-5)}, "f32")
    assert "to_f32" not in row
