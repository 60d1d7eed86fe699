import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lang_core import EagerExecutionContext, OpError
from transformer_core.layers._kv_cache import KVCache
from transformer_core.layers._places import cache_starts

CTX = EagerExecutionContext()


def cache_of(capacity: int) -> KVCache:
    key, value = np.random.default_rng(0).standard_normal((2, 2, 3, capacity, 5), np.float32)
    return KVCache(CTX.ops.constant(key), CTX.ops.constant(value))


@given(st.integers(1, 4), st.integers(0, 6))
def test_new_entries_go_to_their_position_and_nothing_else_changes(count, position):
    cache = cache_of(10)
    new = np.random.default_rng(1).standard_normal((2, 2, 3, count, 5), np.float32)
    updated = cache.updated(CTX, new[0], new[1], cache_starts(CTX, CTX.ops.constant(position)))
    for before, after, entries in ((cache.key, updated.key, new[0]), (cache.value, updated.value, new[1])):
        expected = before.numpy().copy()
        expected[:, :, position : position + count] = entries
        np.testing.assert_array_equal(after.numpy(), expected)
        assert not np.array_equal(before.numpy(), expected)  # the old cache is as it was
    assert updated.capacity == 10


def test_more_entries_than_it_holds_are_refused():
    new = CTX.ops.zeros((2, 3, 5, 5), "f32")
    with pytest.raises(OpError, match="a KV cache of capacity 4 cannot take 5 entries at once"):
        cache_of(4).updated(CTX, new, new, cache_starts(CTX, CTX.ops.constant(0)))
