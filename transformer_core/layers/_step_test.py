import numpy as np
import pytest

from lang_core import EagerExecutionContext, OpError
from transformer_core.layers._masks import causal_mask, mask_bias
from transformer_core.layers._places import Starts
from transformer_core.layers._rope import rope_tables
from transformer_core.layers._rope_config import RopeConfig
from transformer_core.layers._rope_scaling import DynamicScaling
from transformer_core.layers._step import make_step

CTX = EagerExecutionContext()
DYNAMIC = RopeConfig(rotated=6, trained_length=4, scaling=DynamicScaling(3.0, 4))


def test_without_caches_the_sequence_begins_at_zero_and_has_its_own_length():
    step = make_step(CTX, DYNAMIC, [None], 7)
    assert not step.places
    expected = rope_tables(CTX, DYNAMIC, CTX.ops.iota((7,)), 7)
    np.testing.assert_array_equal(step.cos.numpy(), expected[0].numpy())
    np.testing.assert_array_equal(step.sin.numpy(), expected[1].numpy())


def test_with_caches_positions_and_masks_begin_at_the_position():
    rope = RopeConfig(rotated=4)
    step = make_step(CTX, rope, [None, 3], 2, keys=9, position=CTX.ops.constant(5))
    np.testing.assert_array_equal(step.cos.numpy(), rope_tables(CTX, rope, CTX.ops.constant([5, 6]))[0].numpy())
    for window in (None, 3):
        mask = causal_mask(CTX, 2, 9, position=5, window=window)
        bias = step.biases[window]
        assert bias is not None
        np.testing.assert_array_equal(bias.numpy(), mask_bias(CTX, mask).numpy())
    starts = step.places[None]
    assert isinstance(starts, Starts)
    assert [int(start) for start in starts.at] == [0, 0, 5, 0]


def test_one_bias_per_window_that_differs():
    step = make_step(CTX, RopeConfig(rotated=4), [None, 3, 3, None, 8, 20], 2, keys=8, position=CTX.ops.constant(0))
    assert set(step.biases) == {None, 3, 8, 20}
    assert step.biases[8] is step.biases[20] is step.biases[None]


def test_a_length_is_asked_for_where_the_scaling_needs_it():
    with pytest.raises(OpError, match="DynamicScaling depends on the sequence's length"):
        make_step(CTX, DYNAMIC, [None], 2, keys=9, position=CTX.ops.constant(5))
