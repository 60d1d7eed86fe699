"""Every configuration of every kernel computes what jax.numpy says it should, and what the heuristic one does."""

import doctest
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from autotune import ConfigSelectorChain, Executor, Invocation, Kernel, supplied
from autotune.supplied import (
    LAYOUTS,
    AttentionConfig,
    AttentionKernel,
    GatedDeltaConfig,
    GatedDeltaKernel,
    GroupedAttentionKernel,
    LinearKernel,
    RMSNormKernel,
    RopeKernel,
    SoftmaxKernel,
    composite_kernels,
    pack_weight,
)
from lang_core import ENCODINGS, EagerExecutionContext, OpError
from transformer_core import RopeConfig, RopeMode, grouped_attention, rope, rope_tables

_EXECUTOR = Executor(ConfigSelectorChain(policy="heuristics"))


def _normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def _all(kernel: Kernel[Any, Any], wanted: Any, *args: Any, tolerance: float = 2e-6, **kwargs: Any) -> int:
    """Checks all candidates and returns their number."""
    candidates = list(kernel.candidate_cfgs(Invocation(kernel.op_id, args, kwargs)))
    assert kernel.heuristic_cfg(Invocation(kernel.op_id, args, kwargs)) in candidates
    assert len(set(candidates)) == len(candidates)
    for cfg in candidates:
        result = _EXECUTOR(kernel, *args, cfg=cfg, **kwargs)
        for ours, theirs in zip(jax.tree.leaves(result), jax.tree.leaves(wanted), strict=True):
            assert ours.shape == theirs.shape, cfg
            ours, theirs = ours.astype(np.float64), np.asarray(theirs, np.float64)
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * np.abs(theirs).max(), err_msg=str(cfg))
    return len(candidates)


def _attention(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float) -> Any:
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x.astype(np.float64), group, 1) for x in (k, v))
    scores = np.einsum("bnth,bnsh->bnts", q.astype(np.float64), k) * scale
    seen = np.ones(scores.shape, bool) if mask is None else np.broadcast_to(mask, scores.shape)
    if causal:
        t, s = scores.shape[2:]
        seen = seen & (np.arange(t)[:, None] + s - t >= np.arange(s))
    weights = np.where(seen, np.exp(scores - scores.max(-1, keepdims=True)), 0)
    return np.einsum("bnts,bnsh->bnth", weights / np.maximum(weights.sum(-1, keepdims=True), 1e-300), v)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", ["none", "rows", "heads", "nothing"])
def test_attention(causal: bool, mask: str) -> None:
    q, k, v = _normal(2, 6, 40, 8), _normal(2, 3, 150, 8, seed=1), _normal(2, 3, 150, 5, seed=2)
    random = np.random.default_rng(3)
    masks = {"none": None, "rows": random.random((40, 150)) < 0.5, "heads": random.random((2, 6, 40, 1)) < 0.7}
    masks["nothing"] = np.zeros((2, 1, 1, 150), bool)
    wanted = _attention(q, k, v, masks[mask], causal, 0.3)
    given = () if mask == "none" else (masks[mask],)
    if wanted.any():
        assert _all(AttentionKernel(), wanted, q, k, v, *given, causal=causal, scale=0.3, tolerance=1e-5) > 3
    for cfg in (AttentionConfig("online", 7, 33), AttentionConfig("online", 64, 150), AttentionConfig("online", 1, 1)):
        if cfg.queries > 1 or mask == "none":
            result = _EXECUTOR(AttentionKernel(), q, k, v, *given, cfg=cfg, causal=causal, scale=0.3)
            np.testing.assert_allclose(result, wanted, atol=2e-6, err_msg=str(cfg))


def test_causal_attention_of_more_queries_than_keys_gives_zeros_to_those_that_see_nothing() -> None:
    q, k = _normal(1, 2, 70, 4), _normal(1, 2, 65, 4, seed=1)
    wanted = _attention(q, k, k, None, True, 0.5)
    assert not wanted[:, :, :5].any()
    assert _all(AttentionKernel(), wanted, q, k, k, causal=True) > 2
    result = _EXECUTOR(AttentionKernel(), q, k, k, cfg=AttentionConfig("online", 3, 16), causal=True)
    np.testing.assert_allclose(result, wanted, atol=2e-6)


def test_attention_in_bf16_is_rounded_like_that_of_ops() -> None:
    q, k, v = (_normal(1, 4, 33, 16, dtype=ml_dtypes.bfloat16, seed=i) for i in range(3))
    wanted = _attention(q, k, v, None, False, 0.25)
    assert _all(AttentionKernel(), wanted, q, k, v, tolerance=2e-2) >= 2
    k, v = (_normal(1, 2, 100, 16, dtype=ml_dtypes.bfloat16, seed=i) for i in (1, 2))
    assert _all(AttentionKernel(), _attention(q, k, v, None, False, 0.25), q, k, v, tolerance=2e-2) > 2


def test_the_example() -> None:
    results = doctest.testmod(supplied)
    assert (results.attempted, results.failed) == (5, 0)


@pytest.mark.parametrize("bias", ["none", "rows", "batch", "rank 1", "hidden", "infinite"])
def test_grouped_attention(bias: str) -> None:
    q, k, v = _normal(2, 3, 2, 40, 8), _normal(2, 3, 150, 8, seed=1), _normal(2, 3, 150, 5, seed=2)
    random = np.random.default_rng(3)
    hidden = random.random((40, 150)) < 0.5
    hidden[:, -1] = False
    added = {
        "none": None,
        "rows": _normal(40, 150, seed=4),
        "batch": _normal(2, 1, 1, 1, 150, seed=4),
        "rank 1": _normal(150, seed=4),
        "hidden": np.where(hidden, -1e30, 0).astype(np.float32),
        "infinite": np.where(hidden | (np.arange(150) < 100), -np.inf, 0).astype(np.float32),
    }[bias]
    scores = np.einsum("bkgth,bksh->bkgts", q.astype(np.float64), k) * 0.3 + (0 if added is None else added)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = np.einsum("bkgts,bksh->bkgth", weights / weights.sum(-1, keepdims=True), v)
    assert _all(GroupedAttentionKernel(), wanted, q, k, v, added, scale=0.3, tolerance=1e-5) > 3
    result = _EXECUTOR(GroupedAttentionKernel(), q, k, v, added, cfg=AttentionConfig("online", 7, 33), scale=0.3)
    np.testing.assert_allclose(result, wanted, atol=2e-6)


def test_grouped_attention_of_16_bits_is_in_the_dtype_of_the_values() -> None:
    q, k = _normal(1, 2, 3, 5, 16, dtype=ml_dtypes.bfloat16), _normal(1, 2, 90, 16, dtype=ml_dtypes.bfloat16, seed=1)
    v = _normal(1, 2, 90, 4, seed=2)
    for cfg in (AttentionConfig(), AttentionConfig("merged"), AttentionConfig("online", 2, 32)):
        assert _EXECUTOR(GroupedAttentionKernel(), q, k, v, cfg=cfg).dtype == np.float32, cfg


def test_every_kernel_of_models_stands_for_a_composite_and_takes_its_calls() -> None:
    """The operands are those of ctx.ops itself: an adapter of another signature could not be called with them."""
    ctx, seen = EagerExecutionContext(), set[str]()

    def noting(name: str) -> Any:
        def substitute(body: Any) -> Any:
            def run(*operands: Any) -> Any:
                if composite_kernels()[name].call(*operands) is not None:
                    seen.add(name)
                return body(*operands)

            return run

        return substitute

    x, heads = _normal(2, 7), _normal(1, 2, 5, 4)
    with ctx.substituting({name: noting(name) for name in composite_kernels()}):
        ctx.ops.linear(x, x)
        wide = _normal(3, 64)
        ctx.ops.packed_linear(ctx.constant(wide), ctx.constant(pack_weight(wide, "q8_0")), ENCODINGS["q8_0"])
        ctx.ops.rms_norm(x)
        ctx.ops.softmax(x)
        ctx.ops.attention(heads, heads, heads)
        ctx.ops.gated_delta_rule(heads, heads, heads, chunk_size=1)
        q, k = ctx.constant(heads[:, :, None]), ctx.constant(heads)
        grouped_attention(ctx, q, k, k)
        rope(ctx, ctx.constant(x), RopeConfig(4))
    assert seen == set(composite_kernels())


@pytest.mark.parametrize("axis", [-1, 1, 0])
@pytest.mark.parametrize("masked", [False, True])
def test_calls_that_no_kernel_does_are_left(axis: int, masked: bool) -> None:
    table, x = composite_kernels(), _normal(2, 3)
    left = table["softmax"].call(x, x > 0 if masked else None, axis) is None
    assert left is (masked or axis == 0)
    q = _normal(1, 2, 3, 4)
    assert (table["attention"].call(q, q, q, None, q if masked else None, None, None) is None) is masked
    assert (table["attention"].call(q, q, q, None, None, None, 3.0 if masked else None) is None) is masked


def test_attention_of_other_shapes_is_refused() -> None:
    with pytest.raises(OpError, match=r"attention of \(1, 3, 4, 2\), \(1, 2, 5, 2\): expected q \[B,N,T,H\]"):
        _EXECUTOR(AttentionKernel(), _normal(1, 3, 4, 2), _normal(1, 2, 5, 2), _normal(1, 2, 5, 2))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if layout not in ENCODINGS])
def test_linear(layout: str, bias: bool) -> None:
    x, weight, b = _normal(2, 3, 7), _normal(96, 7, seed=1), _normal(96, seed=2)
    wanted = x @ weight.T + (b if bias else 0)
    given = (x, pack_weight(weight, layout, tile=2), *([b] if bias else []))
    assert _all(LinearKernel(), wanted, *given, layout=layout) >= 6


def test_weights_are_packed_or_refused() -> None:
    weight = np.arange(12).reshape(6, 2)
    assert pack_weight(weight, "tiles", 3).tolist() == [[[0, 2, 4], [1, 3, 5]], [[6, 8, 10], [7, 9, 11]]]
    with pytest.raises(OpError, match=r"the weight \[6, 2\] has 6 outputs, not a multiple of the tile of 4"):
        pack_weight(weight, "tiles", 4)
    for call in (lambda: pack_weight(weight, "tile"), lambda: _EXECUTOR(LinearKernel(), weight, weight, layout="tile")):
        with pytest.raises(OpError, match=r"unknown layout 'tile'; available: .*; did you mean 'tiles'"):
            call()


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_softmax_and_rms_norm(dtype: Any) -> None:
    x, weight = _normal(2, 3, 50, dtype=dtype) * dtype(8), _normal(50, dtype=dtype, seed=1)
    tolerance = 2e-6 if dtype is np.float32 else 1e-2
    wide = jnp.asarray(x, jnp.float32)
    assert _all(SoftmaxKernel(), jax.nn.softmax(wide, -1), x, tolerance=tolerance) == 3
    normed = wide * jax.lax.rsqrt(jnp.mean(wide**2, -1, keepdims=True) + 0.1)
    assert _all(RMSNormKernel(), normed, x, eps=0.1, tolerance=tolerance) == 2
    assert _all(RMSNormKernel(), normed * weight.astype(np.float32), x, weight, eps=0.1, tolerance=tolerance) == 2


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("mode", list(RopeMode))
def test_rope(mode: RopeMode, partial: bool) -> None:
    size, rotated = 10, 6 if partial else 10
    config = RopeConfig(rotated, base=100.0, mode=mode)
    ctx = EagerExecutionContext()
    cos, sin = rope_tables(ctx, config, ctx.ops.iota((5,)))
    x = _normal(2, 3, 5, size)
    angles = np.arange(5)[:, None] * 100.0 ** (-2 * np.arange(rotated // 2) / rotated)
    turning = x[..., :rotated].astype(np.float64)
    split = mode is RopeMode.SPLIT_HALF
    half = rotated // 2
    a, b = (turning[..., :half], turning[..., half:]) if split else (turning[..., ::2], turning[..., 1::2])
    first, second = a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)
    turned = np.concatenate([first, second], -1) if split else np.stack([first, second], -1).reshape(turning.shape)
    wanted = np.concatenate([turned, x[..., rotated:]], -1)
    assert _all(RopeKernel(), wanted, x, cos.numpy(), sin.numpy(), mode=mode) == 2


@pytest.mark.parametrize("gate", ["none", "head", "channel"])
def test_gated_delta(gate: str) -> None:
    batch, tokens, heads, shared, key, value = 2, 37, 4, 2, 3, 5
    q, k, v = _normal(batch, tokens, heads, key), _normal(batch, tokens, shared, key, seed=1), None
    v = _normal(batch, tokens, shared, value, seed=2)
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    g = {"none": None, "head": (batch, tokens, shared), "channel": (batch, tokens, shared, key)}[gate]
    g = None if g is None else -np.abs(_normal(*g, seed=3))
    beta = 1 / (1 + np.exp(_normal(batch, tokens, shared, seed=4)))
    state = _normal(batch, shared, key, value, seed=5)
    wanted_o, s = np.zeros((batch, tokens, heads, value)), state.astype(np.float64)
    for t in range(tokens):
        if g is not None:
            decay = np.exp(g[:, t].astype(np.float64))
            s = s * (decay[..., None, None] if gate == "head" else decay[..., None])
        u = beta[:, t, :, None] * (v[:, t] - np.einsum("bki,bkij->bkj", k[:, t], s))
        s = s + np.einsum("bki,bkj->bkij", k[:, t], u)
        wanted_o[:, t] = np.einsum("bni,bnij->bnj", q[:, t], np.repeat(s, heads // shared, 1)) * key**-0.5
    result = _all(GatedDeltaKernel(), (wanted_o, s), q, k, v, g, beta, state, tolerance=5e-5)
    assert result == 6
    one = [x if x is None else x[:, :1] for x in (q, k, v, g, beta)]
    assert list(GatedDeltaKernel().candidate_cfgs(Invocation("x", tuple(one)))) == [GatedDeltaConfig(1)]
