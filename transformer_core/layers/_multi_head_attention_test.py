import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lang_core import ConfigError
from transformer_core.layers._masks import padding_bias
from transformer_core.layers._multi_head_attention import MultiHeadAttention
from transformer_core.layers._weights_testing import RandomWeights, context_of

ATTENTION = MultiHeadAttention(12, 3, key_bias=False)
CTX = context_of(ATTENTION)
WEIGHTS = RandomWeights(ATTENTION)
RANDOM = np.random.default_rng(0)
X, MEMORY = (RANDOM.standard_normal((2, length, 12)).astype(np.float32) for length in (5, 7))


def expected(x: np.ndarray, memory: np.ndarray, counts: np.ndarray | None = None) -> np.ndarray:
    """jax's attention, [B, T, N, H]; ``counts`` bool [B, S]."""

    def heads(name: str, y: np.ndarray) -> jax.Array:
        bias = WEIGHTS.read(f"{name}.bias") if WEIGHTS.has(f"{name}.bias") else 0.0
        return jnp.reshape(y @ WEIGHTS.read(f"{name}.weight").T + bias, (*y.shape[:2], 3, 4))

    mask = None if counts is None else jnp.asarray(counts)[:, None, None, :]
    seen = jax.nn.dot_product_attention(heads("q_proj", x), heads("k_proj", memory), heads("v_proj", memory), mask=mask)
    return np.asarray(seen.reshape(*x.shape)) @ WEIGHTS.read("o_proj.weight").T + WEIGHTS.read("o_proj.bias")


def test_over_itself():
    np.testing.assert_allclose(ATTENTION(CTX, CTX.constant(X)).numpy(), expected(X, X), rtol=1e-5, atol=1e-5)


def test_over_others_whose_keys_are_made_once():
    seen = ATTENTION.keys_values(CTX, CTX.constant(MEMORY))
    assert seen.key.shape == seen.value.shape == (2, 3, 7, 4)
    actual = ATTENTION.attend(CTX, CTX.constant(X), seen).numpy()
    np.testing.assert_allclose(actual, expected(X, MEMORY), rtol=1e-5, atol=1e-5)


def test_padding_is_not_seen():
    mask = np.array([[1, 1, 0, 0, 1], [1, 1, 1, 1, 0]], np.int32)
    bias = padding_bias(CTX, CTX.constant(mask))
    assert bias.shape == (2, 1, 1, 1, 5)
    actual = ATTENTION(CTX, CTX.constant(X), bias).numpy()
    np.testing.assert_allclose(actual, expected(X, X, mask != 0), rtol=1e-5, atol=1e-5)


def test_a_query_that_sees_no_key_spreads_its_weights():
    """A token of padding may be far from all others; its state must stay a number, as others multiply it by 0."""
    bias = np.full((1, 1, 1, 5, 5), -1e30, np.float32)
    bias[..., :3, :] = 0
    actual = ATTENTION(CTX, CTX.constant(X), CTX.constant(bias)).numpy()
    seen = ATTENTION(CTX, CTX.constant(X)).numpy()
    np.testing.assert_allclose(actual[:, :3], seen[:, :3], rtol=1e-5, atol=1e-5)
    values = (X @ WEIGHTS.read("v_proj.weight").T + WEIGHTS.read("v_proj.bias")).mean(1, keepdims=True)
    spread = values @ WEIGHTS.read("o_proj.weight").T + WEIGHTS.read("o_proj.bias")
    np.testing.assert_allclose(actual[:, 3:], np.broadcast_to(spread, (2, 2, 12)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("bias", "dtype", "fused"),
    [
        (None, "f32", True),
        (None, "bf16", True),
        ((2, 1, 1, 1, 5), "f32", True),
        ((1, 1, 1, 5, 5), "f32", True),
        ((1, 3, 1, 5, 5), "f32", False),  # a bias for each head: T5
        (None, "f64", False),
    ],
)
def test_attention_is_the_op_that_has_kernels(
    bias: tuple[int, ...] | None, dtype: str, fused: bool, monkeypatch: pytest.MonkeyPatch
):
    attention, called = MultiHeadAttention(12, 3, dtype=dtype), list[bool]()
    ctx = context_of(attention)
    op = type(ctx.ops).cached_attention

    def noted(*args, **kwargs):
        called.append(True)
        return op(*args, **kwargs)

    monkeypatch.setattr(type(ctx.ops), "cached_attention", noted)
    x = ctx.ops.cast(ctx.constant(X), dtype)
    attention(ctx, x, None if bias is None else ctx.constant(np.zeros(bias, np.float32)))
    assert bool(called) is fused


def test_biases():
    paths = [path for path, _ in ATTENTION.named_parameters() if path.endswith("bias")]
    assert paths == ["q_proj.bias", "v_proj.bias", "o_proj.bias"]
    bare = MultiHeadAttention(4, 2, qkv_bias=False, output_bias=False)
    assert [path for path, _ in bare.named_parameters() if path.endswith("bias")] == []


def test_heads_divide_the_size():
    with pytest.raises(ConfigError, match="attention: 5 heads do not divide the model size 12"):
        MultiHeadAttention(12, 5)
