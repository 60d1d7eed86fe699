import numpy as np
import pytest

from lang_core import ConfigError, EagerExecutionContext
from transformer_core.layers._altup import AltUp, AltUpProjections, AltUpSizes, AltUpUnembedding, Laurel, add_to_others
from transformer_core.layers._weights_testing import RandomWeights

_SIZES = AltUpSizes(size=6, copies=3, active=1, eps=1e-3)
_X = np.random.default_rng(2).standard_normal((2, 4, 3, 6)).astype(np.float32)  # [B, T, A, D]


def _rms_norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-3) * weight


def _modalities(weights: RandomWeights, x: np.ndarray) -> np.ndarray:
    return np.tanh(_rms_norm(x, weights.read("router_norm.weight")) / 6 @ weights.read("modality_router.weight").T)


def test_every_copy_is_predicted_from_all():
    """Written as the paper has it: copy n gains a mix of all copies m, with weights that the active one chooses."""
    altup = AltUp(_SIZES)
    weights = RandomWeights(altup)
    mix = (_modalities(weights, _X[:, :, 1]) @ weights.read("prediction_coefs.weight").T).reshape(2, 4, 3, 3)
    expected = _X + np.einsum("btnm,btmd->btnd", mix, _X)
    actual = altup.predicted(EagerExecutionContext(weights), EagerExecutionContext().ops.constant(_X)).numpy()
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_every_copy_is_corrected_by_what_the_active_one_missed():
    altup = AltUp(_SIZES)
    weights, computed = RandomWeights(altup), _X[::-1, :, 0]
    ctx = EagerExecutionContext(weights)
    gains = _modalities(weights, computed) @ weights.read("correction_coefs.weight").T + 1
    expected = _X + np.einsum("bta,btd->btad", gains, computed - _X[:, :, 1])
    actual = altup.corrected(ctx, ctx.ops.constant(_X), ctx.ops.constant(computed)).numpy()
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(altup.active(ctx, ctx.ops.constant(_X)).numpy(), _X[:, :, 1])


def test_the_first_copy_gets_nothing_not_even_an_infinity():
    ops, more = EagerExecutionContext().ops, _X[:, :, 2].copy()
    more[0, 0, 0] = np.inf
    actual = add_to_others(EagerExecutionContext(), ops.constant(_X), ops.constant(more)).numpy()
    np.testing.assert_array_equal(actual[:, :, 0], _X[:, :, 0])
    np.testing.assert_array_equal(actual[:, :, 1:], _X[:, :, 1:] + more[:, :, None])


@pytest.mark.parametrize("copies", [1, 3])
def test_copies_are_as_large_as_what_they_are_made_of(copies: int):
    projections = AltUpProjections(AltUpSizes(size=6, copies=copies))
    weights, x = RandomWeights(projections), _X[:, :, 0]
    actual = projections(EagerExecutionContext(weights), EagerExecutionContext().ops.constant(x)).numpy()
    assert actual.shape == (2, 4, copies, 6)
    np.testing.assert_array_equal(actual[:, :, 0], x)
    for index in range(copies - 1):
        projected = x @ weights.read(f"{index}.weight").T
        ratio = np.sqrt((x**2).mean(-1, keepdims=True) / (projected**2).mean(-1, keepdims=True))
        np.testing.assert_allclose(actual[:, :, index + 1], projected * ratio, rtol=1e-4, atol=1e-6)


def test_a_copy_without_magnitude_stays_finite():
    projections = AltUpProjections(AltUpSizes(size=6, copies=2))
    zeros = EagerExecutionContext().ops.zeros((1, 1, 6), "f32")
    assert not projections(EagerExecutionContext(RandomWeights(projections)), zeros).numpy().any()


def test_one_stream_is_the_mean_of_the_copies_in_the_firsts_magnitude():
    unembedding = AltUpUnembedding(_SIZES)
    weights = RandomWeights(unembedding)
    projected = [_X[:, :, 0], *(_X[:, :, i + 1] @ weights.read(f"{i}.weight").T for i in range(2))]
    size = np.sqrt((_X[:, :, 0] ** 2).mean(-1, keepdims=True))
    expected = np.mean([copy / np.sqrt((copy**2).mean(-1, keepdims=True)) * size for copy in projected], axis=0)
    actual = unembedding(EagerExecutionContext(weights), EagerExecutionContext().ops.constant(_X)).numpy()
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)


def test_laurel_adds_a_normed_product_of_low_rank():
    laurel = Laurel(6, 2, eps=1e-3)
    weights, x = RandomWeights(laurel), _X[:, :, 0]
    low = x @ weights.read("linear_left.weight").T @ weights.read("linear_right.weight").T
    expected = x + _rms_norm(low, weights.read("post_laurel_norm.weight"))
    actual = laurel(EagerExecutionContext(weights), EagerExecutionContext().ops.constant(x)).numpy()
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_an_active_copy_that_there_is_not():
    with pytest.raises(ConfigError, match="AltUp: expected an active copy of 0 to 2; found 3"):
        AltUpSizes(size=6, copies=3, active=3)
