import doctest

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lang_core import DTYPES, DType, bf16, f16, f32, f64
from runtime.dump import _statistics
from runtime.dump._statistics import CHUNK, Statistics, chunks, statistics


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_against_numpy(dtype: DType) -> None:
    values = np.random.default_rng(0).integers(-5 if dtype.name not in ("u8", "bool") else 0, 90, (3, 7))
    array = values.astype(dtype.numpy)
    figures = statistics(array)
    wide = array.astype(np.float64)
    assert figures.mean == pytest.approx(wide.mean(), rel=1e-14)
    assert figures == Statistics(wide.min(), wide.max(), figures.mean, 0, 0)
    assert type(figures.min) is (float if dtype.is_floating else int)


@settings(max_examples=200, deadline=None)
@given(
    hnp.arrays(
        st.sampled_from([np.float32, np.float64, np.float16]),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5),
        elements=st.sampled_from([0.0, -0.0, 1.5, -3.0, 6e4, np.nan, np.inf, -np.inf]),
    ),
    st.integers(1, 7),
)
def test_special_values_in_chunks_of_any_size(array: np.ndarray, chunk: int) -> None:
    before, _statistics.CHUNK = CHUNK, chunk
    try:
        figures = statistics(array)
    finally:
        _statistics.CHUNK = before
    finite = array[np.isfinite(array)].astype(np.float64)
    assert (figures.nan, figures.inf) == (np.isnan(array).sum(), np.isinf(array).sum())
    if not finite.size:
        assert (figures.min, figures.max, figures.mean) == (None, None, None)
        return
    assert (figures.min, figures.max) == (finite.min(), finite.max())
    assert figures.mean == pytest.approx(finite.mean(), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("dtype", [bf16, f16, f32])
def test_many_chunks_and_a_rest(dtype: DType) -> None:
    array = np.random.default_rng(1).standard_normal(2 * CHUNK + 77).astype(dtype.numpy)
    array[CHUNK + 5], array[7] = np.inf, np.nan
    wide = array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    figures = statistics(array)
    assert (figures.min, figures.max, figures.nan, figures.inf) == (finite.min(), finite.max(), 1, 1)
    assert figures.mean == pytest.approx(finite.mean(), rel=1e-10)


def test_the_largest_numbers_do_not_overflow_the_mean() -> None:
    top = np.finfo(np.float64).max
    assert statistics(np.full(4, top)).mean == pytest.approx(top)
    assert statistics(np.array([top, -top, top, -top] * CHUNK)).mean == 0


@pytest.mark.parametrize("dtype", [f64, bf16])
def test_any_strides_in_row_major_order_and_in_pieces(dtype: DType) -> None:
    array = np.arange(2 * CHUNK * 3).reshape(3, -1).astype(dtype.numpy).T
    pieces = [piece.copy() for piece in chunks(_statistics.stored(array))]
    assert max(piece.size for piece in pieces) <= CHUNK
    np.testing.assert_array_equal(np.concatenate(pieces), _statistics.stored(np.ascontiguousarray(array)).reshape(-1))
    assert statistics(array[::2]) == statistics(np.ascontiguousarray(array[::2]))


def test_the_example() -> None:
    result = doctest.testmod(_statistics)
    assert (bool(result.attempted), result.failed) == (True, 0)
