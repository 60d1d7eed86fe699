import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lang_core import DType, OpError, as_dtype, bf16, f16, f32, f64, i32
from lang_core.ops._samples_testing import (
    DRAWN,
    FLOATING,
    OPS_NOW,
    SEEDS,
    SHAPES,
    assert_close,
    assert_same,
    generator,
    values,
)

POINTS = np.concatenate([np.linspace(-8, 8, 161), [0.0, -0.0, 20.0, -20.0, 1e-4, -1e-4]])


def _f64(x: Any) -> Any:
    """JAX's array of the exact values, to compute the truth in f64."""
    return jnp.asarray(np.asarray(x).astype(np.float64))


@pytest.mark.parametrize("dtype", FLOATING, ids=repr)
@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("relu", jax.nn.relu),
        ("silu", jax.nn.silu),
        ("softplus", jax.nn.softplus),
        ("gelu", lambda x: jax.nn.gelu(x, approximate=False)),
        ("gelu_tanh", lambda x: jax.nn.gelu(x, approximate=True)),
    ],
)
def test_activations_round_once(name: str, reference: Any, dtype: DType) -> None:
    x = POINTS.astype(dtype.numpy)
    with jax.enable_x64(True):
        wanted = np.asarray(reference(_f64(x))).astype(dtype.numpy)
    # 1 + erf and 1 + tanh cancel far below 0: there the error is absolute, of the wide dtype.
    scale = 8 if dtype.itemsize > 2 else 2.0**-10
    assert_close(getattr(OPS_NOW, name)(x), wanted, ulps=1 if dtype.itemsize == 2 else 4, scale=scale)


def test_activations_at_the_ends() -> None:
    ends = np.array([np.inf, np.nan, 1e4, -1e4], np.float32)
    assert OPS_NOW.softplus(ends).numpy().tolist()[2:] == [1e4, 0.0]
    for name in ("relu", "silu", "softplus", "gelu", "gelu_tanh"):
        result = getattr(OPS_NOW, name)(ends).numpy()
        assert result[0] == np.inf, name
        assert np.isnan(result[1]), name
        assert result[3] == 0, name


@given(shape=SHAPES, dtype=st.sampled_from(FLOATING), seed=SEEDS)
@DRAWN
def test_mean_divides_the_wide_sum_once(shape: tuple[int, ...], dtype: DType, seed: int) -> None:
    rng = generator(seed)
    x = values(rng, (*shape, 3), dtype)
    axes, keepdims = tuple(range(int(rng.integers(0, x.ndim + 1)))), bool(rng.integers(0, 2))
    count = math.prod(x.shape[axis] for axis in axes)
    total = np.sum(x.astype(np.float64), axis=axes, keepdims=keepdims)
    with np.errstate(all="ignore"):
        wanted = (total / count).astype(dtype.numpy)
    assert_close(OPS_NOW.mean(x, axes, keepdims), wanted, ulps=1)


def test_mean_of_f16_does_not_overflow_and_of_integers_is_refused() -> None:
    assert_same(OPS_NOW.mean(np.full((4, 3), 60000, np.float16)), np.array(60000, np.float16))
    with pytest.raises(OpError, match=r"mean of i32\[2\]: the dtype must be floating: cast it first"):
        OPS_NOW.mean(OPS_NOW.constant([1, 2]))


@given(shape=SHAPES, dtype=st.sampled_from(FLOATING), seed=SEEDS)
@DRAWN
def test_softmax_where(shape: tuple[int, ...], dtype: DType, seed: int) -> None:
    rng = generator(seed)
    x = values(rng, (*shape, 4), dtype)
    axis = int(rng.integers(-x.ndim, x.ndim)) if 0 not in shape else -1
    where = rng.random(x.shape) < 0.6
    wide = np.exp(x.astype(np.float64))
    plain = wide / wide.sum(axis, keepdims=True)
    assert_close(OPS_NOW.softmax(x, axis), plain.astype(dtype.numpy))
    kept = wide * where
    masked = kept / np.maximum(kept.sum(axis, keepdims=True), 1e-30)  # all zeros where nothing counts
    assert_close(OPS_NOW.softmax(x, axis, where), masked.astype(dtype.numpy))


@pytest.mark.parametrize("dtype", FLOATING, ids=repr)
def test_softmax_equals_jax_with_extreme_scores(dtype: DType) -> None:
    x = np.array([[6e4, 1, 6e4], [-np.inf, 0, 1], [np.nan, 0, 0], [-6e4, -6e4, -6e4]]).astype(dtype.numpy)
    where = np.array([[True, True, False], [True] * 3, [False, True, True], [True, True, False]])
    with jax.enable_x64(True):
        plain = np.asarray(jax.nn.softmax(_f64(x))).astype(dtype.numpy)
        masked = np.asarray(jax.nn.softmax(_f64(np.where(where, x, 0)), where=jnp.asarray(where))).astype(dtype.numpy)
    assert_close(OPS_NOW.softmax(x), plain)
    assert_close(OPS_NOW.softmax(x, where=where), masked)
    nowhere = np.zeros((4, 1), bool)
    assert_same(OPS_NOW.softmax(x, where=nowhere), np.zeros((4, 3), dtype.numpy))


def test_softmax_refuses_a_wider_mask() -> None:
    with pytest.raises(OpError, match=r"softmax of shape \(3,\): where, of shape \(2, 3\), does not broadcast to it"):
        OPS_NOW.softmax(np.zeros(3), where=np.ones((2, 3), bool))


@pytest.mark.parametrize("dtype", FLOATING, ids=repr)
def test_norms(dtype: DType) -> None:
    rng = generator(12)
    x = (3 * rng.standard_normal((2, 5, 16)) + 1).astype(dtype.numpy)
    weight, bias = (rng.standard_normal(16).astype(dtype.numpy) for _ in range(2))
    wide, w, b = (operand.astype(np.float64) for operand in (x, weight, bias))
    rms = (wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-6)).astype(dtype.numpy)
    assert_close(OPS_NOW.rms_norm(x), rms)
    assert_close(OPS_NOW.rms_norm(x, weight), (rms.astype(np.float64) * w).astype(dtype.numpy))
    length = wide / np.sqrt((wide**2).sum(-1, keepdims=True) + 1e-6)
    assert_close(OPS_NOW.l2_norm(x), length.astype(dtype.numpy))
    with jax.enable_x64(True):
        centred = np.asarray(jax.nn.standardize(_f64(x), epsilon=1e-5))
    assert_close(OPS_NOW.layer_norm(x), centred.astype(dtype.numpy), scale=2)
    assert_close(OPS_NOW.layer_norm(x, weight, bias), (centred * w + b).astype(dtype.numpy), scale=2)
    assert_close(OPS_NOW.layer_norm(x, bias=bias), (centred + b).astype(dtype.numpy), scale=2)


def test_norms_keep_the_dtype_of_x_whatever_the_weights() -> None:
    x = np.array([[300.0, -200.0]], np.float16)  # whose squares overflow f16
    weight = np.array([1.0, 2.0], np.float32)
    assert_close(OPS_NOW.rms_norm(x, weight), np.array([[1.1767, -1.5689]], np.float16))
    assert_close(OPS_NOW.layer_norm(x, weight, weight), np.array([[2.0, 0.0]], np.float16))
    assert_close(OPS_NOW.rms_norm(np.zeros((1, 3), np.float32), eps=0.25), np.zeros((1, 3), np.float32))


def _attention(q: Any, k: Any, v: Any, mask: Any, scale: float, softcap: float | None) -> Any:
    """One query at a time, in f64."""
    q, k, v = (operand.astype(np.float64) for operand in (q, k, v))
    (batch, heads, queries, _), group = q.shape, q.shape[1] // k.shape[1]
    result = np.zeros((batch, heads, queries, v.shape[-1]))
    mask = np.broadcast_to(True if mask is None else mask, (batch, heads, queries, k.shape[2]))
    for b, n, t in np.ndindex(batch, heads, queries):
        scores = k[b, n // group] @ q[b, n, t] * scale
        if softcap:
            scores = np.tanh(scores / softcap) * softcap
        seen = mask[b, n, t]
        if seen.any():
            weights = np.exp(scores[seen] - scores[seen].max())
            result[b, n, t] = weights / weights.sum() @ v[b, n // group][seen]
    return result


@pytest.mark.parametrize("dtype", [f32, f64, f16, bf16], ids=repr)
@pytest.mark.parametrize("shared", [1, 2, 6])
@pytest.mark.parametrize("masked", ["none", "[T, S]", "[B, 1, T, S]", "[1, N, T, S]", "[B, N, T, S]"])
def test_attention(dtype: DType, shared: int, masked: str) -> None:
    rng = generator(shared)
    batch, heads, queries, keys, size = 2, 6, 3, 5, 8
    q = rng.standard_normal((batch, heads, queries, size)).astype(dtype.numpy)
    k = rng.standard_normal((batch, shared, keys, size)).astype(dtype.numpy)
    v = rng.standard_normal((batch, shared, keys, 7)).astype(dtype.numpy)
    sizes = {"B": batch, "N": heads, "T": queries, "S": keys, "1": 1}
    mask = None if masked == "none" else rng.random([sizes[a] for a in masked[1:-1].split(", ")]) < 0.6
    if mask is not None:
        mask[..., 1, :] = False  # a query that may look nowhere
    for scale, softcap in ((None, None), (0.7, 1.5)):
        wanted = _attention(q, k, v, mask, size**-0.5 if scale is None else scale, softcap)
        actual = OPS_NOW.attention(q, k, v, mask, scale, softcap)
        assert (actual.dtype, actual.shape) == (dtype, wanted.shape)
        np.testing.assert_allclose(
            actual.numpy().astype(np.float64), wanted, atol={2: 2e-2, 4: 2e-6, 8: 1e-14}[dtype.itemsize]
        )
        if mask is not None:
            assert not actual.numpy()[:, :, 1].astype(np.float64).any()


def test_attention_equals_jax() -> None:
    rng = generator(21)
    q, k, v = (rng.standard_normal((2, t, n, 8)) for t, n in ((3, 6), (5, 2), (5, 2)))  # JAX wants [B, T, N, H]
    mask = np.tri(3, 5, 2, dtype=bool)
    with jax.enable_x64(True):
        wanted = jax.nn.dot_product_attention(
            *(jnp.asarray(operand) for operand in (q, k, v)), mask=jnp.asarray(mask[None, None])
        )
    turned = [operand.transpose(0, 2, 1, 3) for operand in (q, k, v)]
    actual = OPS_NOW.attention(*turned, mask).numpy().transpose(0, 2, 1, 3)
    np.testing.assert_allclose(actual, np.asarray(wanted), atol=1e-6)  # JAX's softmax is in f32


@pytest.mark.parametrize(
    ("k", "v"),
    [
        ((2, 4, 5, 8), (2, 4, 5, 8)),
        ((2, 3, 5, 7), (2, 3, 5, 8)),
        ((1, 3, 5, 8), (1, 3, 5, 8)),
        ((2, 3, 5, 8), (2, 3, 6, 8)),
        ((5, 8), (5, 8)),
    ],
)
def test_attention_refuses_operands_that_do_not_fit(k: tuple[int, ...], v: tuple[int, ...]) -> None:
    with pytest.raises(
        OpError, match=r"attention of shapes \(2, 6, 3, 8\), .*wanted q \[B,N,T,H\], .*K a divisor of N"
    ):
        OPS_NOW.attention(np.zeros((2, 6, 3, 8)), np.zeros(k), np.zeros(v))


@pytest.mark.parametrize("mask", [(4,), (5, 3), (2, 3, 5), (2, 3, 3, 5), (3, 1, 3, 5), (1, 1, 1, 3, 5)])
def test_attention_refuses_a_mask_that_does_not_fit(mask: tuple[int, ...]) -> None:
    q, k = np.zeros((2, 6, 3, 8)), np.zeros((2, 3, 5, 8))
    with pytest.raises(
        OpError, match=r"attention: mask has shape .*; wanted one that broadcasts to \(2, 6, 3, 5\), \[B,N,T,S\]"
    ):
        OPS_NOW.attention(q, k, k, np.ones(mask, bool))
    with pytest.raises(OpError, match=r"attention: bias has shape .*; wanted one that broadcasts to \(2, 6, 3, 5\)"):
        OPS_NOW.attention(q, k, k, bias=np.zeros(mask))


@pytest.mark.parametrize("shape", [(), (5,), (3, 1), (1, 5), (6, 3, 5), (6, 1, 1), (2, 1, 1, 5), (2, 6, 3, 5)])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_adds_a_bias_of_any_shape_that_broadcasts(shape: tuple[int, ...], masked: bool) -> None:
    rng = generator(len(shape))
    q, k, v = (rng.standard_normal(s) for s in ((2, 6, 3, 8), (2, 2, 5, 8), (2, 2, 5, 7)))
    bias = np.where(rng.random(shape) < 0.3, -np.inf, rng.standard_normal(shape))
    mask = rng.random(shape) < 0.8 if masked else None
    scores = np.tanh(np.einsum("bnth,bnsh->bnts", q, k.repeat(3, 1)) * 0.4 / 1.5) * 1.5 + bias
    scores = scores if mask is None else np.where(mask, scores, -np.inf)
    largest = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isinf(largest), 0, largest))
    wanted = np.einsum("bnts,bnsh->bnth", weights / np.maximum(weights.sum(-1, keepdims=True), 1e-30), v.repeat(3, 1))
    actual = OPS_NOW.attention(q, k, v, mask, 0.4, 1.5, bias)
    np.testing.assert_allclose(actual.numpy(), wanted, atol=1e-14)


def test_log_softmax_equals_jax() -> None:
    for dtype in (f32, f64):
        x = generator(8).standard_normal((3, 4, 5)).astype(dtype.numpy) * 60
        with jax.enable_x64(True):
            for axis in (0, -1):
                wanted = np.asarray(jax.nn.log_softmax(jnp.asarray(x), axis))
                assert_close(OPS_NOW.log_softmax(x, axis), wanted)


def test_composites_take_tensors_and_arrays_alike() -> None:
    x = np.array([[1.0, -2.0, 0.5]], np.float32)
    for name in (
        "mean",
        "relu",
        "silu",
        "softplus",
        "gelu",
        "gelu_tanh",
        "softmax",
        "log_softmax",
        "rms_norm",
        "layer_norm",
    ):
        method = getattr(OPS_NOW, name)
        assert_same(method(OPS_NOW.constant(x)), method(x).numpy())
    assert OPS_NOW.cast(x, as_dtype("i32")).dtype is i32
