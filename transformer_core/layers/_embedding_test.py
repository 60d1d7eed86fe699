import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_core.layers._embedding import PatchEmbedding, patch_count
from transformer_core.layers._weights_testing import RandomWeights, context_of


@pytest.mark.parametrize("image", [(6, 12), (7, 14)])
def test_a_convolution(image):
    embedding = PatchEmbedding(3, 5, (2, 4))
    pixels = np.random.default_rng(0).standard_normal((2, 3, *image)).astype(np.float32)
    ctx, weights = context_of(embedding), RandomWeights(embedding)
    actual = embedding(ctx, ctx.constant(pixels)).numpy()
    weight = jnp.asarray(weights.read("weight"))
    expected = jax.lax.conv(jnp.asarray(pixels), weight, (2, 4), "VALID")  # [B, D, 3, 3]
    expected = np.asarray(expected).reshape(2, 5, 9).transpose(0, 2, 1) + weights.read("bias")
    assert actual.shape == (2, patch_count(image, (2, 4)), 5) == (2, 9, 5)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def test_without_a_bias():
    assert [path for path, _ in PatchEmbedding(1, 2, (3, 3), bias=False).named_parameters()] == ["weight"]
