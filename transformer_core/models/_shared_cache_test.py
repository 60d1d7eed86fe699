"""Layers that read the keys and values of another layer, against a model written with jax."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lang_core import ConfigError, EagerExecutionContext, OpError
from transformer_core.layers._attention import Attention
from transformer_core.layers._attention_config import AttentionConfig, CacheSharing
from transformer_core.layers._cache import SharedCache
from transformer_core.layers._rope_config import RopeConfig, RopeKind
from transformer_core.layers._step import make_step
from transformer_core.layers._weights_testing import RandomWeights, context_of
from transformer_core.models import DecoderConfig, DecoderLM, entry_points
from transformer_core.models._tiny_testing import HYBRID, VARIANTS, changed

LENGTH = 22
IDS = np.random.default_rng(8).integers(0, 31, (2, LENGTH)).astype(np.int32)
CONFIG = changed(
    layers=5,
    windows=(4, None, 4, None, 4),
    cache_owners=(None, None, 0, 1, 0),
    rope=RopeConfig(rotated=6, trained_length=64),
    qk_norm=True,
)


def _norm(x: Any, weight: Any, eps: float) -> Any:
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + eps) * weight


def _rotated(x: Any) -> Any:
    """x [B, T, N, H] by plain RoPE, halves apart."""
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1])[:, None] * 10000.0 ** (-jnp.arange(half) / half)
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


def _by_jax(config: DecoderConfig, read: Any, ids: np.ndarray) -> Any:
    """Logits [B, T, V] of whole sequences: a Llama whose layers may take an earlier one's keys and values."""
    x = read("model.embed_tokens.weight")[ids]
    batch, tokens = ids.shape
    rows, columns = jnp.arange(tokens)[:, None], jnp.arange(tokens)[None]
    kept: list[Any] = []
    for index in range(config.layers):
        weight = lambda name, index=index: read(f"model.layers.{index}.{name}.weight")  # noqa: E731
        normed = _norm(x, weight("input_layernorm"), config.norm_eps)
        q = (normed @ weight("self_attn.q_proj").T).reshape(batch, tokens, config.heads, -1)
        q = _rotated(_norm(q, weight("self_attn.q_norm"), config.norm_eps))
        owner = config.cache_owners[index]
        if owner is None:
            k = (normed @ weight("self_attn.k_proj").T).reshape(batch, tokens, config.kv_heads, -1)
            v = (normed @ weight("self_attn.v_proj").T).reshape(batch, tokens, config.kv_heads, -1)
            kept.append((_rotated(_norm(k, weight("self_attn.k_norm"), config.norm_eps)), v))
        else:
            kept.append(kept[owner])
        k, v = (jnp.repeat(tensor, config.heads // config.kv_heads, 2) for tensor in kept[index])
        scores = jnp.einsum("btnh,bsnh->bnts", q, k) * config.head_size**-0.5
        window = config.windows[index] or tokens
        scores = jnp.where((columns <= rows) & (columns > rows - window), scores, -jnp.inf)
        heads = jnp.einsum("bnts,bsnh->btnh", jax.nn.softmax(scores), v).reshape(batch, tokens, -1)
        x = x + heads @ weight("self_attn.o_proj").T
        normed = _norm(x, weight("post_attention_layernorm"), config.norm_eps)
        gate = jax.nn.silu(normed @ weight("mlp.gate_proj").T)
        x = x + (gate * (normed @ weight("mlp.up_proj").T)) @ weight("mlp.down_proj").T
    return _norm(x, read("model.norm.weight"), config.norm_eps) @ read("lm_head.weight").T


@pytest.fixture(scope="module")
def model() -> DecoderLM:
    return DecoderLM(CONFIG)


@pytest.fixture(scope="module")
def expected(model: DecoderLM) -> np.ndarray:
    weights = RandomWeights(model)
    return np.asarray(_by_jax(CONFIG, lambda name: jnp.asarray(weights.read(name)), IDS))


def _close(actual: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(actual, wanted, rtol=2e-4, atol=2e-4)  # of up to 5


def test_whole_sequences(model: DecoderLM, expected: np.ndarray) -> None:
    ctx = context_of(model)
    _close(model(ctx, ctx.constant(IDS)).numpy(), expected)


@pytest.mark.parametrize("window_caches", ["whole", "ring"])
@pytest.mark.parametrize("positions", ["shared", "per_row"])
def test_pieces_and_single_tokens(model: DecoderLM, expected: np.ndarray, positions: str, window_caches: str) -> None:
    ctx = context_of(model)
    sizes: Any = {"batch": 2, "sequence": 5, "max_sequence": LENGTH}
    names = ("prefill", "decode", "verify")
    points = entry_points(model, names=names, positions=positions, window_caches=window_caches, **sizes)
    prefill, decode, score = points
    kept: list[Any] = [ctx.ops.full(a.spec.shape, 7.0, a.spec.dtype) for a in decode.arguments if a.alias_result]

    def run(point: Any, start: int, count: int) -> np.ndarray:
        tokens = np.full((2, point.arguments[0].spec.shape[1]), 30, np.int32)
        tokens[:, :count] = IDS[:, start : start + count]
        places = [start] if point is decode else [start, count - 1]
        shape = (2,) if positions == "per_row" else ()
        arrays: list[Any] = [tokens, *[np.full(shape, place, np.int32) for place in places]]
        logits, *kept[:], _ = point(ctx, *map(ctx.constant, arrays), *kept).values()
        return logits.numpy()

    _close(run(prefill, 0, 5), expected[:, 4])
    _close(run(prefill, 5, 3), expected[:, 7])
    _close(run(score, 8, 5), expected[:, 8:13])
    for position in range(13, LENGTH):
        _close(run(decode, position, 1), expected[:, position])


def test_there_is_one_cache_and_one_pair_of_projections_per_owner(model: DecoderLM) -> None:
    decode = entry_points(model, names=["decode"], sequence=5, max_sequence=9)[0]
    assert [a.name for a in decode.arguments[2:]] == [
        f"layers.{index}.{part}_cache" for index in (0, 1) for part in ("key", "value")
    ]
    layouts = [layer.cache_layout(1, 9) for layer in model.model.layers]
    assert [layout.owner for layout in layouts] == [None, None, 0, 1, 0]
    assert layouts[4].make() == SharedCache(0)
    names = {path for path, _ in model.named_parameters()}
    for index, owner in enumerate(CONFIG.cache_owners):
        has = {
            part for part in ("k_proj", "v_proj", "k_norm") if f"model.layers.{index}.self_attn.{part}.weight" in names
        }
        assert has == (set() if owner is not None else {"k_proj", "v_proj", "k_norm"})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"cache_owners": (None, 1)},
            "layer 1 reads .* of layer 1: expected an earlier layer that has",
        ),
        ({"cache_owners": (1, None)}, "layer 0 reads .* of layer 1: expected an earlier layer"),
        (
            {"layers": 3, "windows": (None,) * 3, "cache_owners": (None, 0, 1)},
            "layer 2 reads .* of layer 1: expected an",
        ),
        (
            {"windows": (3, None), "cache_owners": (None, 0)},
            r"one of the same window and RoPE \(\(None, None\)\)",
        ),
        (
            {"rope_kinds": (RopeKind.NONE, RopeKind.MODEL), "cache_owners": (None, 0)},
            "layer 1 reads .* of layer 0: expected one of the same window and RoPE",
        ),
        (
            {"layer_sizes": VARIANTS["sizes"]["layer_sizes"], "cache_owners": (None, 0)},
            r"one of the same K and H \(1, 8\); found \(2, 6\)",
        ),
        ({**VARIANTS["latent"], "cache_owners": (None, 0)}, "expected an earlier layer .* uncompressed"),
    ],
)
def test_owners_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"cache_owners: .*{message}"):
        DecoderLM(changed(**changes))


def test_a_state_cannot_be_read_as_keys() -> None:
    fields = {name: getattr(HYBRID, name) for name in DecoderConfig.__dataclass_fields__}
    with pytest.raises(ConfigError, match="layer 1 reads the keys and values of layer 0: expected an earlier layer"):
        DecoderLM(DecoderConfig(**{**fields, "cache_owners": (None, 0, None)}))


def test_attention_without_its_owners_cache() -> None:
    module = Attention(AttentionConfig(12, 2, 1, 6, sharing=CacheSharing(owner=3)))
    ctx = EagerExecutionContext(RandomWeights(module))
    step = make_step(ctx, RopeConfig(rotated=6), [None], 4)
    with pytest.raises(OpError, match=r"attention at '.*' reads the keys and values of layer 3: pass its cache"):
        module(ctx, ctx.ops.zeros((1, 4, 12), "f32"), step)
