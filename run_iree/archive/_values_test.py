from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lang_core import DTYPES, as_dtype, bf16, i32
from run_iree.archive._values import LossError, NonFinite, check_lossless_range, convert, count_nonfinite

FLOATS = [dtype for dtype in DTYPES if dtype.is_floating]
BF16 = ml_dtypes.bfloat16


def converted(array: np.ndarray, dtype: str) -> np.ndarray:
    out = np.empty(array.shape, as_dtype(dtype).numpy)
    convert(array, out)
    return out


def test_every_bf16_widens_by_a_shift() -> None:
    bits = np.arange(2**16, dtype=np.uint16)
    np.testing.assert_array_equal(converted(bits.view(BF16), "f32").view(np.uint32), bits.astype(np.uint32) << 16)


def test_every_16_bit_value_survives_a_round_trip() -> None:
    bits = np.arange(2**16, dtype=np.uint16)
    for narrow in (BF16, np.float16):
        values = bits.view(narrow)
        for wide in ("f32", "f64"):
            back = converted(converted(values, wide), as_dtype(np.dtype(narrow)).name)
            with np.errstate(invalid="ignore"):  # signalling NaNs are among them
                nan = np.isnan(values)
            np.testing.assert_array_equal(back.view(np.uint16)[~nan], bits[~nan])
            assert np.isnan(back[nan]).all()


def test_every_bf16_narrows_to_f16_as_ml_dtypes_does() -> None:
    values = np.arange(2**16, dtype=np.uint16).view(BF16)
    with np.errstate(all="ignore"):
        expected = values.astype(np.float16)
    np.testing.assert_array_equal(converted(values, "f16").view(np.uint16), expected.view(np.uint16))


def is_nearest_even(value: float, rounded: np.ndarray) -> bool:
    """Checks by exact rational arithmetic that no neighbour is nearer, and that a tie goes to the even one."""
    if not np.isfinite(rounded):
        return True
    exact, distance = Fraction(value), abs(Fraction(float(rounded)) - Fraction(value))
    bits = int(rounded.view(np.uint16))
    for other in {max((bits & 0x7FFF) - 1, 0), (bits & 0x7FFF) + 1}:
        near = np.uint16(other | (bits & 0x8000)).view(BF16)
        if np.isfinite(near):
            gap = abs(Fraction(float(near)) - exact)
            if gap < distance or (gap == distance and bits & 1 and other != bits & 0x7FFF):
                return False
    return True


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_f64_to_bf16_rounds_once(value: float) -> None:
    assert is_nearest_even(value, converted(np.array([value]), "bf16")[0])


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_f32_to_bf16_rounds_to_nearest_even(value: float) -> None:
    assert is_nearest_even(value, converted(np.array([value], np.float32), "bf16")[0])


def test_f64_to_bf16_where_rounding_twice_is_wrong() -> None:
    value = 1 + 2.0**-8 + 2.0**-40  # just above the middle between two bf16: f32 in between lands on the middle
    assert float(converted(np.array([value, -value]), "bf16")[0]) == 1 + 2.0**-7
    assert float(converted(np.array([value, -value]), "bf16")[1]) == -1 - 2.0**-7


@pytest.mark.parametrize("dtype", FLOATS, ids=repr)
def test_nonfinite_values_are_counted(dtype) -> None:
    values = np.array([0, -0.0, 1, -1e-5, np.inf, -np.inf, np.nan, -np.nan, np.nan], dtype.numpy)
    scratch = np.empty(100, np.uint8)
    assert count_nonfinite(values, dtype, scratch) == NonFinite(3, 2)
    assert count_nonfinite(values[:4], dtype, scratch) == NonFinite()
    assert count_nonfinite(values[:0], dtype, scratch) == NonFinite()
    largest = np.array([np.finfo(np.float16).max, -60000], dtype.numpy)
    assert count_nonfinite(largest, dtype, scratch) == NonFinite()


def test_integers_are_finite() -> None:
    assert count_nonfinite(np.array([-1, 2**31 - 1], np.int32), i32, np.empty(8, np.uint8)) == NonFinite()


def test_every_bf16_pattern_is_counted_as_numpy_does() -> None:
    values = np.arange(2**16, dtype=np.uint16).view(BF16)
    with np.errstate(invalid="ignore"):  # signalling NaNs are among them
        expected = NonFinite(int(np.isnan(values).sum()), int(np.isinf(values).sum()))
    assert count_nonfinite(values, bf16, np.empty(2**17, np.uint8)) == expected


def test_overflow_is_found_and_infinity_is_none() -> None:
    values = np.array([np.inf, 1, -7e4, 8e4], np.float32)
    with pytest.raises(LossError) as caught:
        check_lossless_range(values, converted(values, "f16"))
    assert (caught.value.index, caught.value.value) == (2, -7e4)
    check_lossless_range(values[:2], converted(values[:2], "f16"))
    signalling = np.array([0x7F81, 0x7F80], np.uint16).view(BF16)
    check_lossless_range(signalling, converted(signalling, "f16"))
