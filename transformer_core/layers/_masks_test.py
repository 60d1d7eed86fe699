import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lang_core import EagerExecutionContext, OpError
from transformer_core.layers._masks import causal_mask, mask_bias

CTX = EagerExecutionContext()
SIZES = st.integers(1, 9)
WINDOWS = st.none() | st.integers(1, 12)


@given(SIZES, st.integers(0, 9), st.integers(0, 9), WINDOWS)
def test_a_query_sees_itself_and_what_came_before_within_the_window(queries, before, after, window):
    keys = before + queries + after
    actual = causal_mask(CTX, queries, keys, position=before, window=window).numpy()
    assert actual.shape == (queries, keys)
    for t in range(queries):
        here = before + t
        first = 0 if window is None else max(0, here - window + 1)
        assert list(np.flatnonzero(actual[t])) == list(range(first, here + 1))


@given(SIZES, st.integers(0, 9), st.integers(0, 9), WINDOWS)
def test_a_chunk_begins_anew_after_its_number_of_positions(queries, before, after, window):
    keys = before + queries + after
    actual = causal_mask(CTX, queries, keys, position=before, window=window, chunked=True).numpy()
    for t in range(queries):
        here = before + t
        first = 0 if window is None else here - here % window
        assert list(np.flatnonzero(actual[t])) == list(range(first, here + 1))


@given(SIZES, st.integers(0, 9), WINDOWS)
def test_without_a_position_the_last_query_stands_at_the_last_key(queries, before, window):
    actual = causal_mask(CTX, queries, before + queries, window=window).numpy()
    expected = causal_mask(CTX, queries, before + queries, position=before, window=window).numpy()
    np.testing.assert_array_equal(actual, expected)
    assert actual[-1, -1]


@given(SIZES, st.integers(0, 9), WINDOWS)
def test_a_position_known_at_run_time_gives_the_same_mask(queries, before, window):
    keys = before + queries
    actual = causal_mask(CTX, queries, keys, position=CTX.ops.constant(before), window=window).numpy()
    np.testing.assert_array_equal(actual, causal_mask(CTX, queries, keys, position=before, window=window).numpy())


@given(st.integers(1, 12), st.integers(1, 5))
def test_a_window_keeps_exactly_its_number_of_keys(window, beyond):
    keys = window + beyond
    actual = causal_mask(CTX, keys, keys, window=window).numpy()
    assert (actual[window - 1 :].sum(-1) == window).all()


def test_a_window_as_wide_as_the_keys_costs_nothing():
    assert causal_mask(CTX, 4, 6, window=6).numpy().tolist() == causal_mask(CTX, 4, 6).numpy().tolist()


def test_bias():
    bias = mask_bias(CTX, causal_mask(CTX, 2, 3)).numpy()
    assert bias.dtype == np.float32
    assert bias.tolist() == [[0.0, 0.0, np.float32(-1e30)], [0.0, 0.0, 0.0]]


def test_wrong_sizes_are_refused():
    with pytest.raises(OpError, match="causal_mask: 5 queries for 3 keys: pass position="):
        causal_mask(CTX, 5, 3)
    with pytest.raises(OpError, match="a window has 1 key or more; found 0"):
        causal_mask(CTX, 2, 3, window=0)
