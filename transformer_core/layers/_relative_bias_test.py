import re

import numpy as np
import pytest

from lang_core import EagerExecutionContext, MappingWeights, OpError
from transformer_core.layers._masks import token_distances
from transformer_core.layers._relative_bias import RelativeBias, alibi_bias, distance_buckets
from transformer_core.layers._weights_testing import context_of


def test_buckets_where_rounding_decides():
    """Expected values are transformers' for 32 buckets up to 128, where a logarithm is a whole number."""
    distances = np.array([-130, -128, -127, -64, -63, -32, -31, -16, -15, -8, -7, 7, 8, 15, 16, 31, 32, 63, 64])
    both = [15, 15, 15, 14, 13, 12, 11, 10, 9, 8, 7, 23, 24, 25, 26, 27, 28, 29, 30]
    assert distance_buckets(distances, 32, 128).tolist() == both
    causal = [31, 31, 31, 26, 26, 21, 21, 16, 15, 8, 7, *[0] * 8]
    assert distance_buckets(distances, 32, 128, causal=True).tolist() == causal


def test_a_query_at_a_position_sees_what_it_does_in_a_whole_sequence():
    for causal in (False, True):
        bias = RelativeBias(8, 3, buckets=8, longest=20, causal=causal)
        ctx = context_of(bias)
        whole = bias(ctx, 11, 11).numpy()
        assert whole.shape == (1, 3, 1, 11, 11)
        step = bias(ctx, 2, 11, ctx.constant(np.int32(6))).numpy()
        np.testing.assert_array_equal(step, whole[..., 6:8, :])


def test_more_queries_than_keys():
    bias = RelativeBias(8, 3, buckets=8, longest=20)
    with pytest.raises(OpError, match=re.escape("expected at most as many queries as keys (4); found 5")):
        bias(context_of(bias), 5, 4)


@pytest.mark.parametrize(("heads", "slopes"), [(1, [2**-8]), (2, [2**-4, 2**-8]), (3, [2**-4, 2**-8, 2**-2])])
def test_alibi_falls_on_both_sides(heads: int, slopes: list[float]) -> None:
    """Slopes as the paper lists them, for powers of 2 and what is between."""
    ctx = EagerExecutionContext(MappingWeights({}))
    bias = alibi_bias(ctx, heads, token_distances(ctx, 4)).numpy()
    assert bias.shape == (1, heads, 1, 4, 4)
    places = np.arange(4)
    expected = -np.array(slopes)[:, None, None] * np.abs(places[:, None] - places)
    np.testing.assert_allclose(bias[0, :, 0], expected, rtol=1e-6)
