"""Caches, taps and bindings are three ways to one result; nothing is computed twice."""

from typing import Any

import numpy as np
import pytest

from lang_core import ConfigError, EagerExecutionContext, EagerTensor, ExecutionContext, Module, Op, OpError
from transformer_core.flow import BuildContext, CompileProfile, Memory, ModelFlow, Positions
from transformer_core.layers._attention import Attention
from transformer_core.layers._attention_config import AttentionConfig
from transformer_core.layers._feed_forward import SwiGLU
from transformer_core.layers._gated_delta_net import GatedDeltaNet
from transformer_core.layers._masks import causal_mask, mask_bias
from transformer_core.layers._norm import RMSNorm
from transformer_core.layers._rope import rope_tables
from transformer_core.layers._rope_config import RopeConfig
from transformer_core.layers._weights_testing import RandomWeights

ROPE = RopeConfig(rotated=4, trained_length=64)
IDS = np.random.default_rng(3).integers(0, 19, (2, 9)).astype(np.int32)


def _mixer(build: BuildContext) -> Module:
    if build.index == 1:
        return GatedDeltaNet(build.size, 1, 2, 3, 5, taps=3, dtype=build.dtype)
    return Attention(AttentionConfig(build.size, 4, 2, 6, window=4 if build.index == 2 else None), dtype=build.dtype)


def _norm(build: BuildContext) -> RMSNorm:
    return RMSNorm(build.size, dtype=build.dtype)


LAYER = (
    ModelFlow("layer")
    .store_residual()
    .stage("norm", _norm)
    .stage("mixer", _mixer)
    .add_residual(0.5)
    .store_residual()
    .stage("mlp", lambda build: SwiGLU(build.size, 12, dtype=build.dtype))
    .add_residual()
)


def _recipe(layers: int = 3, windows: Any = (None, None, 4)) -> ModelFlow:
    return (
        ModelFlow("lm")
        .input("token_ids", ("B", "T"), "i32")
        .rope_tables(ROPE, windows[:layers])
        .token_embed(19, 8, scale=2.0, name="model.embed_tokens")
        .repeat_layers(layers, LAYER, name="model.layers")
        .last_token()
        .final_norm(name="model.norm")
        .lm_head(tied=True)
    )


def _profile(preset: str, **changes: Any) -> CompileProfile:
    return CompileProfile.preset(preset, batch=2, **changes)


def _ctx(recipe: ModelFlow) -> EagerExecutionContext:
    return EagerExecutionContext(RandomWeights(recipe.build(_profile("training", sequence=2))))


def _arrays(results: Any) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in results.items()}


def test_padded_prefill_and_decode_give_what_the_whole_gives():
    recipe = _recipe()
    ctx = _ctx(recipe)
    whole = recipe.build(_profile("training", sequence=9))(ctx, IDS)["logits"].numpy()
    prefill = recipe.build(_profile("prefill", sequence=6, max_sequence=16))
    names = [argument.name for argument in prefill.arguments()]
    kept = [f"layers.{i}.{part}" for i, part in enumerate(("key_cache", "conv_state", "key_cache"))]
    assert names[:3] == ["token_ids", "position", "last"]
    assert names[3::2] == kept
    empty = [np.zeros(argument.spec.shape, argument.spec.dtype.numpy) for argument in prefill.arguments()[3:]]
    padded = np.concatenate([IDS[:, :4], np.full((2, 2), 17, np.int32)], 1)
    logits, *caches = _arrays(prefill(ctx, padded, np.int32(0), np.int32(3), *empty)).values()
    np.testing.assert_allclose(logits, whole[:, 3], rtol=2e-5, atol=2e-5)
    decode = recipe.build(_profile("decode", max_sequence=16))
    assert [argument.name for argument in decode.arguments()] == ["token_ids", "position", *names[3:]]
    for position in range(4, 9):
        results = _arrays(decode(ctx, IDS[:, position : position + 1], np.int32(position), *caches))
        assert list(results) == ["logits", *names[3:]]
        logits, *caches = results.values()
        np.testing.assert_allclose(logits, whole[:, position], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("ring_tokens", [None, 4])
def test_score_gives_every_row_and_the_next_ids_over_whole_caches_and_rings(ring_tokens: int | None):
    recipe = _recipe()
    ctx = _ctx(recipe)
    whole = recipe.build(_profile("training", sequence=9))(ctx, IDS)["logits"].numpy()
    kept: Any = {"max_sequence": 16, "ring_tokens": ring_tokens, "next_ids": True}
    score = recipe.build(_profile("verify", sequence=4, **kept))
    names = [argument.name for argument in score.arguments()]
    assert names[:3] == ["token_ids", "position", "last"]
    places = {argument.name: argument.spec.shape[2] for argument in score.arguments()[3:] if argument.spec.ndim == 4}
    assert places["layers.2.key_cache"] == (16 if ring_tokens is None else 7)
    assert places["layers.0.key_cache"] == 16
    caches = [np.zeros(argument.spec.shape, argument.spec.dtype.numpy) for argument in score.arguments()[3:]]
    for position in (0, 4):
        results = score(ctx, IDS[:, position : position + 4], np.int32(position), np.int32(3), *caches)
        assert list(results) == ["logits", *names[3:], "next_ids"]
        logits, *caches, next_ids = _arrays(results).values()
        np.testing.assert_allclose(logits, whole[:, position : position + 4], rtol=2e-5, atol=2e-5)
        np.testing.assert_array_equal(next_ids, logits.argmax(-1))
    decode = recipe.build(_profile("decode", **kept))
    logits, *_ = _arrays(decode(ctx, IDS[:, 8:], np.int32(8), *caches)).values()
    np.testing.assert_allclose(logits, whole[:, 8], rtol=2e-5, atol=2e-5)


def test_sequences_of_several_lengths_in_one_batch():
    recipe = _recipe()
    ctx = _ctx(recipe)
    whole = recipe.build(_profile("training", sequence=9))(ctx, IDS)["logits"].numpy()
    ragged: Any = {"max_sequence": 16, "positions": "per_row"}
    prefill = recipe.build(_profile("prefill", sequence=6, **ragged))
    assert [repr(argument.spec) for argument in prefill.arguments()[1:3]] == ["i32[2]", "i32[2]"]
    empty = [np.zeros(argument.spec.shape, argument.spec.dtype.numpy) for argument in prefill.arguments()[3:]]
    last = np.array([2, 5], np.int32)
    padded = np.where(np.arange(6) <= last[:, None], IDS[:, :6], 17).astype(np.int32)
    logits, *caches = _arrays(prefill(ctx, padded, np.zeros(2, np.int32), last, *empty)).values()
    np.testing.assert_allclose(logits, whole[[0, 1], last], rtol=2e-5, atol=2e-5)
    decode = recipe.build(_profile("decode", **ragged))
    for step in range(1, 4):
        position = last + step
        tokens = IDS[[0, 1], position][:, None]
        logits, *caches = _arrays(decode(ctx, tokens, position, *caches)).values()
        np.testing.assert_allclose(logits, whole[[0, 1], position], rtol=2e-5, atol=2e-5)
    taps = recipe.build(_profile("training", sequence=6, memory="taps", rows="last", positions="per_row"))
    tapped = _arrays(taps(ctx, padded, last))
    np.testing.assert_allclose(tapped["logits"], whole[[0, 1], last], rtol=2e-5, atol=2e-5)


def test_tables_and_masks_of_each_sequence_can_be_bound():
    recipe = _recipe()
    ctx = _ctx(recipe)
    whole = recipe.build(_profile("training", sequence=9))(ctx, IDS)["logits"].numpy()
    taps = _arrays(recipe.build(_profile("training", sequence=5, memory="taps"))(ctx, IDS[:, :5]))
    taps.pop("logits")
    profile = CompileProfile(
        name="extend", batch=2, sequence=3, max_sequence=5, memory=Memory.BINDINGS, positions=Positions.PER_ROW
    )
    bound = [np.stack([table, table]) for table in _bound(ctx, 5, 3)]
    results = _arrays(recipe.build(profile)(ctx, IDS[:, 5:8], *bound, *taps.values()))
    np.testing.assert_allclose(results["logits"], whole[:, 5:8], rtol=2e-5, atol=2e-5)


class _Counting(EagerExecutionContext):
    """Counts ops."""

    def __init__(self, weights: Any) -> None:
        super().__init__(weights)
        self.counts: dict[str, int] = {}

    @property
    def products(self) -> int:
        """Attention over what is kept is two of them."""
        return self.counts["dot_general"] + 2 * self.counts.get("cached_attention", 0)

    def apply(self, op: Op, inputs: tuple[Any, ...], attributes: tuple[Any, ...] = ()) -> Any:
        self.counts[op.name] = self.counts.get(op.name, 0) + 1
        return super().apply(op, inputs, attributes)


def test_taps_come_out_of_the_one_run():
    recipe = _recipe()
    weights = RandomWeights(recipe.build(_profile("training", sequence=2)))
    plain, tapped = _Counting(weights), _Counting(weights)
    whole = _arrays(recipe.build(_profile("training", sequence=9))(plain, IDS))
    taps = _arrays(recipe.build(_profile("training", sequence=9, memory="taps"))(tapped, IDS))
    assert tapped.products == plain.products
    assert "dynamic_update_slice" not in tapped.counts
    np.testing.assert_array_equal(taps.pop("logits"), whole["logits"])
    prefill = recipe.build(_profile("prefill", sequence=9))
    empty = [np.zeros(argument.spec.shape, np.float32) for argument in prefill.arguments()[3:]]
    _, *caches = _arrays(prefill(EagerExecutionContext(weights), IDS, np.int32(0), np.int32(8), *empty)).values()
    parts = ["0.key", "0.value", "1.conv_state", "1.delta_state", "2.key", "2.value"]
    assert list(taps) == [f"layers.{part}" for part in parts]
    for tap, cache in zip(taps.values(), caches, strict=True):
        np.testing.assert_allclose(tap, cache, rtol=1e-6, atol=1e-6)


def _bound(ctx: ExecutionContext, past: int, new: int) -> list[np.ndarray]:
    """cos, sin and the masks that a caller who keeps keys and values himself computes."""
    positions: Any = np.arange(past, past + new, dtype=np.int32)
    tables = [table.numpy() for table in rope_tables(ctx, ROPE, EagerTensor(ctx.constant(positions).spec, positions))]
    masks = [mask_bias(ctx, causal_mask(ctx, new, past + new, window=window)).numpy() for window in (None, 4)]
    return [*tables, *masks]


def test_bindings_let_the_caller_keep_keys_and_values():
    recipe = _recipe()
    ctx = _ctx(recipe)
    whole = recipe.build(_profile("training", sequence=9))(ctx, IDS)["logits"].numpy()
    taps = _arrays(recipe.build(_profile("training", sequence=5, memory="taps"))(ctx, IDS[:, :5]))
    taps.pop("logits")
    profile = CompileProfile(name="extend", batch=2, sequence=3, max_sequence=5, memory=Memory.BINDINGS)
    model = recipe.build(profile)
    names = [argument.name for argument in model.arguments()]
    assert names[:5] == ["token_ids", "cos", "sin", "mask", "mask_4"]
    assert names[5:] == [f"layers.{p}" for p in ("0.past_key", "0.past_value", "1.conv_state", "1.delta_state")] + [
        "layers.2.past_key",
        "layers.2.past_value",
    ]
    specs = {argument.name: argument.spec.shape for argument in model.arguments()}
    assert (specs["cos"], specs["mask"], specs["layers.0.past_key"]) == ((3, 4), (3, 8), (2, 2, 5, 6))
    results = _arrays(model(ctx, IDS[:, 5:8], *_bound(ctx, 5, 3), *taps.values()))
    np.testing.assert_allclose(results["logits"], whole[:, 5:8], rtol=2e-5, atol=2e-5)
    assert results["layers.0.key"].shape == (2, 2, 3, 6)
    later = _arrays(recipe.build(_profile("training", sequence=8, memory="taps"))(ctx, IDS[:, :8]))
    np.testing.assert_allclose(results["layers.2.key"], later["layers.2.key"][:, :, 5:], rtol=1e-5, atol=1e-5)


def test_a_side_output_is_not_called_as_what_is_kept():
    recipe = _recipe().side_output("layers.2.value")
    assert recipe.build(_profile("training", sequence=3)).trace().results["layers.2.value"].shape == (2, 3, 19)
    with pytest.raises(OpError, match=r"flow 'lm': two results are called 'layers\.2\.value': rename the side output"):
        recipe.build(_profile("training", sequence=3, memory="taps")).trace()


def test_an_encoder_sees_what_comes_after():
    recipe = _recipe(1)
    ctx = _ctx(recipe)
    changed = IDS.copy()
    changed[:, -1] += 1
    causal, both = (recipe.build(_profile(preset, sequence=9)) for preset in ("training", "encoder"))
    np.testing.assert_array_equal(
        causal(ctx, IDS)["logits"].numpy()[:, :8], causal(ctx, changed)["logits"].numpy()[:, :8]
    )
    assert np.abs(both(ctx, IDS)["logits"].numpy() - both(ctx, changed)["logits"].numpy())[:, 0].max() > 1e-4
    last = both(ctx, IDS)["logits"].numpy()[:, -1]
    np.testing.assert_allclose(causal(ctx, IDS)["logits"].numpy()[:, -1], last, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("recipe", "changes", "message"),
    [
        (_recipe(1), {"causal": False}, "causal: profile 'prefill' keeps keys and values of tokens that did not see"),
        (_recipe(), {"max_sequence": 64}, None),
        (
            _recipe(),
            {"max_sequence": 65},
            "expected at most 64 positions, which the model's RoPE reaches; found 65: lower m",
        ),
        (_recipe(), {"memory": "bindings", "max_sequence": 61}, "reaches; found 65: lower max_sequence"),
        (_recipe(), {"memory": "none", "sequence": 65}, "reaches; found 65: lower sequence"),
        (_recipe().without("lm_head"), {"next_ids": True}, r"profile 'prefill' needs logits, .*'lm' has no \.lm_head"),
        (_recipe().without("token_ids"), {}, "flow 'lm': no stage is an input"),
        (_recipe().input("last", ("B",), "i32"), {}, "flow 'lm': two arguments are called 'last'"),
    ],
)
def test_profiles_that_a_recipe_cannot_be_built_for(recipe: ModelFlow, changes: Any, message: str | None):
    profile = _profile("prefill", **{"sequence": 4, "max_sequence": 16, **changes})
    if message is None:
        assert recipe.build(profile).arguments()
        return
    with pytest.raises(ConfigError, match=message):
        recipe.build(profile).arguments()
