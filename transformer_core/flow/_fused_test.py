"""Forms of a layer: composed of stages, with separate or fused projections, and as the modules that are there."""

from typing import Any

import numpy as np
import pytest

from lang_core import DType, EagerExecutionContext, TensorSpec
from transformer_core.checkpoints import ComposedWeights, Cut, Recipe
from transformer_core.flow import Block, BuildContext, CompileProfile, FlowContext, FlowValue, ModelFlow
from transformer_core.layers._attention import Attention, grouped_attention
from transformer_core.layers._attention_config import AttentionConfig
from transformer_core.layers._feed_forward import SwiGLU
from transformer_core.layers._linear import Linear
from transformer_core.layers._norm import RMSNorm
from transformer_core.layers._rope import apply_rope
from transformer_core.layers._rope_config import RopeConfig, RopeMode
from transformer_core.layers._weights_testing import RandomWeights
from transformer_core.models import DecoderConfig, DecoderLayer

CONFIG = DecoderConfig(
    architecture="LlamaForCausalLM",
    vocabulary=23,
    hidden=12,
    intermediate=20,
    layers=2,
    heads=4,
    kv_heads=2,
    head_size=6,
    norm_eps=1e-5,
    rope=RopeConfig(rotated=6, trained_length=64),
    windows=(None, None),
)
PROFILE = CompileProfile.preset("training", sequence=7, batch=2)
X = np.random.default_rng(7).standard_normal((2, 7, 12)).astype(np.float32)


class ComposedAttention(Block):
    """Attention of raw ops; one projection for q, k and v, or three."""

    def __init__(self, config: DecoderConfig, dtype: DType, fused: bool) -> None:
        self.sizes = tuple(heads * config.head_size for heads in (config.heads, config.kv_heads, config.kv_heads))
        self.config = config
        if fused:
            self.qkv_proj = Linear(config.hidden, sum(self.sizes), dtype=dtype)
        else:
            self.q_proj, self.k_proj, self.v_proj = (Linear(config.hidden, size, dtype=dtype) for size in self.sizes)
        self.fused = fused
        self.o_proj = Linear(self.sizes[0], config.hidden, dtype=dtype)

    def run(self, flow: FlowContext, *values: FlowValue) -> FlowValue:
        (x,), emit, config = values, flow.emit, self.config
        (batch, tokens, _), (group, size) = x.shape, (config.heads // config.kv_heads, config.head_size)
        if self.fused:
            q, k, v = emit.several("split", flow.run(self.qkv_proj, x), self.sizes, axis=2)
        else:
            q, k, v = (flow.run(part, x) for part in (self.q_proj, self.k_proj, self.v_proj))
        q = emit("transpose", emit("reshape", q, (batch, tokens, config.kv_heads, group, size)), (0, 2, 3, 1, 4))
        k, v = (
            emit("transpose", emit("reshape", x, (batch, tokens, config.kv_heads, size)), (0, 2, 1, 3)) for x in (k, v)
        )
        q, k = (self._rotated(flow, x) for x in (q, k))
        heads = grouped_attention(flow.ctx, q.tensor, k.tensor, v.tensor, flow.step.biases[None])
        joined = emit("reshape", emit("transpose", flow.value(heads), (0, 3, 1, 2, 4)), (batch, tokens, -1))
        return flow.run(self.o_proj, joined)

    def _rotated(self, flow: FlowContext, x: FlowValue) -> FlowValue:
        return flow.value(apply_rope(flow.ctx, x.tensor, flow.step.cos, flow.step.sin, RopeMode.SPLIT_HALF), x.spec)


def _norm(build: BuildContext) -> RMSNorm:
    return RMSNorm(12, eps=1e-5, dtype=build.dtype)


def _attention(build: BuildContext) -> Attention:
    return Attention(AttentionConfig(12, 4, 2, 6), dtype=build.dtype)


LAYER = (
    ModelFlow("layer")
    .store_residual()
    .stage("input_layernorm", _norm)
    .stage("self_attn", _attention)
    .add_residual()
    .store_residual()
    .stage("post_attention_layernorm", _norm)
    .stage("mlp", lambda build: SwiGLU(12, 20, dtype=build.dtype))
    .add_residual()
)
BASE = ModelFlow("m").input("x", ("B", "T", 12)).rope_tables(CONFIG.rope)
MODULES = BASE.repeat_layers(2, lambda build: DecoderLayer(CONFIG, build.index, build.dtype))
STAGES = BASE.repeat_layers(2, LAYER)
COMPOSED = STAGES.patch("self_attn", lambda build: ComposedAttention(CONFIG, build.dtype, fused=False))
FUSED = STAGES.patch("self_attn", lambda build: ComposedAttention(CONFIG, build.dtype, fused=True))


_ROWS = {"q_proj": (0, 24), "k_proj": (24, 36), "v_proj": (36, 48)}


def _recipe_of(name: str, shape: tuple[int, ...], source: Any) -> Recipe | None:
    """The three projections are rows of qkv_proj."""
    part = name.split(".")[-2]
    if part not in _ROWS:
        return None
    return Cut(name.replace(part, "qkv_proj"), (48, shape[1]), 0, *_ROWS[part])


def _run(recipe: ModelFlow, weights: Any, profile: CompileProfile = PROFILE, *others: Any) -> dict[str, np.ndarray]:
    model = recipe.build(profile)
    wanted = {path: parameter.spec for path, parameter in model.named_parameters()}
    ctx = EagerExecutionContext(ComposedWeights(weights, wanted, _recipe_of))
    results = model(ctx, X.astype(profile.dtype.numpy), *others)
    return {name: tensor.numpy() for name, tensor in results.items()}


@pytest.mark.parametrize(
    ("recipe", "exact"), [(STAGES, True), (COMPOSED, True), (FUSED, False)], ids=["stages", "composed", "fused"]
)
def test_all_forms_of_a_layer_are_equal(recipe: ModelFlow, exact: bool):
    weights = RandomWeights(FUSED.build(PROFILE))
    expected, actual = (_run(flow, weights)["output"] for flow in (MODULES, recipe))
    assert np.abs(expected - X).max() > 0.1
    if exact:
        np.testing.assert_array_equal(actual, expected)
    else:  # a product of another shape may sum in another order
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_the_parameters_are_those_of_the_layer_that_is_there():
    def specs(recipe: ModelFlow) -> dict[str, TensorSpec]:
        return {path: parameter.spec for path, parameter in recipe.build(PROFILE).named_parameters()}

    assert specs(STAGES) == specs(MODULES) == specs(COMPOSED)
    fused = specs(FUSED)
    assert fused["layers.1.self_attn.qkv_proj.weight"] == TensorSpec((48, 12), "f32")
    assert not any("q_proj" in path for path in fused)


def test_layers_of_stages_keep_what_the_layer_keeps():
    weights = RandomWeights(FUSED.build(PROFILE))
    profile = CompileProfile.preset("prefill", batch=2, sequence=7, max_sequence=9)
    modules, stages = MODULES.build(profile).arguments(), STAGES.build(profile).arguments()
    assert modules == stages
    caches = [np.full(argument.spec.shape, 0.25, np.float32) for argument in modules[2:]]
    actual = [_run(recipe, weights, profile, np.int32(2), *caches) for recipe in (MODULES, STAGES)]
    assert actual[0].keys() == actual[1].keys()
    for name, expected in actual[0].items():
        np.testing.assert_array_equal(actual[1][name], expected)


def test_bf16_means_bf16():
    profile = CompileProfile.preset("training", sequence=7, batch=2, dtype="bf16")
    weights = RandomWeights(FUSED.build(profile))
    expected, actual = (_run(flow, weights, profile)["output"] for flow in (MODULES, COMPOSED))
    assert expected.dtype == profile.dtype.numpy
    np.testing.assert_array_equal(actual, expected)
