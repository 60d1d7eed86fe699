import os
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lang_core import ConfigError, EagerExecutionContext, MappingWeights, OpError, Tensor
from transformer_core.layers._attention import Attention, grouped_attention
from transformer_core.layers._attention_config import AttentionConfig, LayerRope, QueryKeyNorm, ScoreConfig
from transformer_core.layers._kv_cache import KVCache, cache_spec
from transformer_core.layers._masks import causal_mask, mask_bias
from transformer_core.layers._rope_config import RopeConfig, RopeKind, RopeMode
from transformer_core.layers._step import make_step
from transformer_core.layers._weights_testing import RandomWeights, context_of

CTX = EagerExecutionContext()
tensor = CTX.ops.constant


# jax compiles each shape
@settings(max_examples=15 if os.environ.get("TAPELINE_LONG") else 5, deadline=None)
@given(
    batch=st.integers(1, 2),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 3),
    queries=st.integers(1, 5),
    before=st.integers(0, 4),
    window=st.none() | st.integers(1, 6),
    scale=st.none() | st.floats(0.1, 2),
)
def test_grouped_attention_agrees_with_jax(batch, kv_heads, group, queries, before, window, scale):
    keys, size = before + queries, 6
    random = np.random.default_rng([batch, kv_heads, group, queries, keys])
    q = random.standard_normal((batch, kv_heads, group, queries, size), np.float32)
    k, v = random.standard_normal((2, batch, kv_heads, keys, size), np.float32)
    mask = causal_mask(CTX, queries, keys, window=window)
    actual = grouped_attention(CTX, tensor(q), tensor(k), tensor(v), mask_bias(CTX, mask), scale).numpy()
    expected = jax.nn.dot_product_attention(
        q.reshape(batch, -1, queries, size).swapaxes(1, 2),  # [B, T, N, H]
        k.swapaxes(1, 2),
        v.swapaxes(1, 2),
        mask=mask.numpy()[None, None],
        scale=scale,
    )
    np.testing.assert_allclose(actual.reshape(batch, -1, queries, size).swapaxes(1, 2), expected, rtol=2e-5, atol=2e-6)


def test_short_dtypes_have_scores_and_softmax_in_f32():
    random = np.random.default_rng(0)
    q, k, v = (CTX.ops.cast(x, "bf16") for x in random.standard_normal((3, 1, 2, 7, 8), np.float32))
    actual = grouped_attention(CTX, CTX.ops.reshape(q, (1, 2, 1, 7, 8)), k, v)
    assert actual.dtype.name == "bf16"
    wide = [CTX.ops.cast(x, "f32") for x in (q, k, v)]
    expected = grouped_attention(CTX, CTX.ops.reshape(wide[0], (1, 2, 1, 7, 8)), wide[1], wide[2]).numpy()
    np.testing.assert_allclose(actual.numpy().astype(np.float32), expected, rtol=1e-2, atol=1e-2)


def test_heads_that_cannot_share_are_refused():
    with pytest.raises(ConfigError, match="attention: 4 key/value heads do not divide 6 query heads"):
        Attention(AttentionConfig(12, 6, 4, 2))


@pytest.mark.parametrize("mode", RopeMode)
@pytest.mark.parametrize("window", [None, 3])
def test_a_cache_filled_in_pieces_gives_what_the_whole_gives(mode, window):
    options: Any = {"norm": QueryKeyNorm(1e-5), "rope": LayerRope(mode), "scores": ScoreConfig(0.3), "window": window}
    attention = Attention(AttentionConfig(10, 4, 2, 6, qkv_bias=True, output_bias=True, **options))
    ctx = context_of(attention)
    rope = RopeConfig(rotated=6, base=50.0, mode=mode)
    x = np.random.default_rng(1).standard_normal((2, 7, 10), np.float32)
    whole, none = attention(ctx, x, make_step(ctx, rope, [window], 7))
    assert none is None
    empty = ctx.ops.zeros((2, 2, 9, 6), "f32")
    cache, position, pieces = KVCache(empty, empty), 0, []
    for size in (3, 1, 2, 1):
        step = make_step(ctx, rope, [window], size, keys=9, position=ctx.ops.constant(position))
        piece, cache = attention(ctx, x[:, position : position + size], step, cache)
        pieces.append(piece.numpy())
        position += size
    np.testing.assert_allclose(np.concatenate(pieces, 1), whole.numpy(), rtol=1e-5, atol=1e-6)
    assert not cache.key.numpy()[:, :, 7:].any()


def test_scores_may_be_capped():
    q, k, v = np.random.default_rng(2).standard_normal((3, 1, 2, 1, 4, 6), np.float32) * 3
    scores = np.tanh(np.einsum("bkgth,bkgsh->bkgts", q, k) * 6**-0.5 / 2) * 2
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    actual = grouped_attention(CTX, tensor(q), tensor(k[:, :, 0]), tensor(v[:, :, 0]), softcap=2.0)
    np.testing.assert_allclose(actual.numpy(), np.einsum("bkgts,bkgsh->bkgth", weights, v), rtol=1e-5, atol=1e-6)


def test_a_layer_without_rope_does_not_know_positions():
    attention = Attention(AttentionConfig(10, 2, 1, 6, rope=LayerRope(kind=RopeKind.NONE)))
    ctx = context_of(attention)
    x = np.random.default_rng(3).standard_normal((1, 3, 10), np.float32)
    steps = [make_step(ctx, RopeConfig(rotated=6, base=base), [None], 3) for base in (50.0, 900.0)]
    one, other = (attention(ctx, x, step)[0].numpy() for step in steps)
    np.testing.assert_array_equal(one, other)
    swapped = attention(ctx, x[:, [1, 0, 2]], steps[0])[0].numpy()
    np.testing.assert_allclose(swapped[:, 2], one[:, 2], rtol=1e-5, atol=1e-6)


def test_a_layer_may_have_the_second_rope():
    model, local = RopeConfig(rotated=6, base=900.0), RopeConfig(rotated=6, base=50.0)
    attention = Attention(AttentionConfig(10, 2, 1, 6))
    second = Attention(AttentionConfig(10, 2, 1, 6, rope=LayerRope(kind=RopeKind.LOCAL)))
    ctx = context_of(attention)
    x = np.random.default_rng(3).standard_normal((1, 3, 10), np.float32)
    expected = attention(ctx, x, make_step(ctx, local, [None], 3))[0].numpy()
    actual = second(ctx, x, make_step(ctx, model, [None], 3, local_rope=local))[0].numpy()
    np.testing.assert_array_equal(actual, expected)
    with pytest.raises(OpError, match="the step has no local RoPE: pass local_rope to make_step"):
        second(ctx, x, make_step(ctx, model, [None], 3))


def test_norms_may_go_over_all_heads():
    attention = Attention(AttentionConfig(10, 4, 2, 6, norm=QueryKeyNorm(1e-5, whole=True)))
    shapes = {path: parameter.spec.shape for path, parameter in attention.named_parameters()}
    assert (shapes["q_norm.weight"], shapes["k_norm.weight"]) == ((24,), (12,))


def test_norms_over_all_heads_come_before_rope():
    with pytest.raises(ConfigError, match="norms of queries and keys: expected whole or after_rope; found both"):
        QueryKeyNorm(1e-6, whole=True, after_rope=True)
    with pytest.raises(ConfigError, match="norms of queries and keys: expected weights, or after_rope; found neither"):
        QueryKeyNorm(1e-6, weighted=False)


def test_values_may_be_what_keys_are_before_norm_and_rope():
    """The same as with a projection of values that equals the keys', and values of length sqrt(H) where normed."""
    norm, x = QueryKeyNorm(1e-5), np.random.default_rng(3).standard_normal((1, 5, 10), np.float32)
    alike = Attention(AttentionConfig(10, 4, 2, 6, norm=norm, values_are_keys=True))
    both = Attention(AttentionConfig(10, 4, 2, 6, norm=norm))
    assert "v_proj.weight" not in dict(alike.named_parameters())
    weights = RandomWeights(alike)
    arrays = {path: weights.read(path) for path, _ in alike.named_parameters()}
    step = make_step(CTX, RopeConfig(rotated=6), [None], 5)
    same = {**arrays, "v_proj.weight": arrays["k_proj.weight"]}
    expected = both(EagerExecutionContext(MappingWeights(same)), x, step)[0].numpy()
    np.testing.assert_array_equal(alike(EagerExecutionContext(MappingWeights(arrays)), x, step)[0].numpy(), expected)


@pytest.mark.parametrize("alike", [False, True])
def test_values_may_be_normed_without_a_weight(alike: bool):
    norm = QueryKeyNorm(1e-5, values=True)
    attention = Attention(AttentionConfig(10, 2, 1, 6, norm=norm, values_are_keys=alike))
    weights, x = RandomWeights(attention), np.random.default_rng(4).standard_normal((1, 1, 10), np.float32)
    values = weights.read("k_proj.weight" if alike else "v_proj.weight") @ x[0, 0]
    normed = values / np.sqrt((values**2).mean() + 1e-5)
    step = make_step(CTX, RopeConfig(rotated=6), [None], 1)
    actual = attention(EagerExecutionContext(weights), x, step)[0].numpy()[0, 0]
    np.testing.assert_allclose(actual, weights.read("o_proj.weight") @ np.tile(normed, 2), rtol=1e-4, atol=1e-5)


def test_parameters_have_hugging_faces_names():
    plain = Attention(AttentionConfig(8, 4, 2, 4))
    assert [path for path, _ in plain.named_parameters()] == [f"{name}_proj.weight" for name in "qkvo"]
    full = Attention(AttentionConfig(8, 4, 2, 4, qkv_bias=True, norm=QueryKeyNorm(1e-6)))
    shapes = {path: parameter.spec.shape for path, parameter in full.named_parameters()}
    assert shapes["k_proj.weight"] == (8, 8)
    assert shapes["q_proj.bias"] == (16,)
    assert "o_proj.bias" not in shapes
    assert shapes["q_norm.weight"] == shapes["k_norm.weight"] == (4,)


def test_cache_spec():
    assert repr(cache_spec(2, 3, 16, 4, "bf16")) == "bf16[2,3,16,4]"


def test_a_gate_multiplies_what_each_head_has_seen():
    """The gated result is the plain one times the gate's logistic, under an identity as output projection."""
    plain, gated = (Attention(AttentionConfig(8, 4, 2, 3, gated=gated)) for gated in (False, True))
    weights: dict[str, Tensor] = {p: context_of(plain).parameter(part) for p, part in plain.named_parameters()}
    weights["o_proj.weight"] = CTX.ops.constant(np.eye(8, 12, dtype=np.float32))
    gate = np.random.default_rng(3).standard_normal((4, 3, 8)).astype(np.float32)
    queries = weights["q_proj.weight"].numpy().reshape(4, 3, 8)
    both = np.concatenate([queries, gate], 1).reshape(24, 8)  # per head its query, then its gate
    x = np.random.default_rng(4).standard_normal((2, 5, 8)).astype(np.float32)
    step = make_step(CTX, RopeConfig(rotated=2), [None], 5)  # a part of the head is rotated
    with CTX.parameters_from(weights):
        wanted = plain(CTX, x, step)[0].numpy()
    with CTX.parameters_from(weights | {"q_proj.weight": CTX.ops.constant(both)}):
        actual = gated(CTX, x, step)[0].numpy()
    factors = 1 / (1 + np.exp(-(x @ gate.reshape(12, 8).T)))[..., :8]
    np.testing.assert_allclose(actual, wanted * factors, rtol=2e-5, atol=1e-6)
