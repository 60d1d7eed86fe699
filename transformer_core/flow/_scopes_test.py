"""Inputs that blocks declare, and scopes: of residuals, of kept values, of states."""

from typing import Any

import numpy as np
import pytest

from lang_core import ConfigError, EagerExecutionContext, OpError, TensorSpec
from transformer_core.flow import Block, BuildContext, CompileProfile, FlowContext, FlowValue, Memory, ModelFlow
from transformer_core.layers._attention import Attention
from transformer_core.layers._attention_config import AttentionConfig
from transformer_core.layers._cache import CacheLayout
from transformer_core.layers._convolution import CausalConv
from transformer_core.layers._gated_delta_net import DeltaState, delta_layout
from transformer_core.layers._kv_cache import cache_spec, kv_layout
from transformer_core.layers._linear import Linear
from transformer_core.layers._rope import rope_tables
from transformer_core.layers._rope_config import RopeConfig
from transformer_core.layers._weights_testing import RandomWeights, context_of

PROFILE = CompileProfile.preset("encoder", sequence=3, batch=2)
INPUT = ModelFlow("m").input("x", ("B", "T", 4))
X = np.random.default_rng(5).standard_normal((2, 3, 4)).astype(np.float32)


class Shifted(Block):
    """Adds an input that no recipe mentions."""

    def __init__(self, name: str = "shift", shape: Any = ("B", 1, 4)) -> None:
        self.input_name, self.shape = name, shape

    def run(self, flow: FlowContext, *values: FlowValue) -> FlowValue:
        shift = flow.input(self.input_name, self.shape)
        return flow.emit("add", values[0], shift, spec=values[0].spec)


def test_an_input_that_a_block_declares_is_an_argument_of_the_model():
    recipe = (
        INPUT.stage("a", lambda build: Shifted())
        .repeat_layers(2, lambda build: Shifted())
        .custom("b", lambda flow, x: flow.emit("mul", x, flow.input("gain", TensorSpec((4,), "f32"))))
    )
    shift, gain = X[:, :1], np.array([1, 2, 3, 4], np.float32)
    expected = (X + 3 * shift) * gain
    called = recipe.build(PROFILE)(EagerExecutionContext(), X, shift, gain)["output"].numpy()
    np.testing.assert_allclose(called, expected, rtol=1e-5)  # asked for no arguments before
    model = recipe.build(PROFILE)
    assert [(argument.name, repr(argument.spec)) for argument in model.arguments()] == [
        ("x", "f32[2,3,4]"),
        ("shift", "f32[2,1,4]"),
        ("gain", "f32[4]"),
    ]
    assert model.entry_point().arguments == model.arguments()
    bf16 = CompileProfile.preset("encoder", sequence=3, batch=2, dtype="bf16")
    assert repr(INPUT.stage("a", lambda build: Shifted()).build(bf16).arguments()[1].spec) == "bf16[2,1,4]"


def test_blocks_of_later_layers_declare_too():
    recipe = INPUT.repeat_layers(3, lambda build: Shifted() if build.index == 2 else Linear(4, 4))
    assert [argument.name for argument in recipe.build(PROFILE).arguments()] == ["x", "shift"]


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (
            INPUT.stage("a", lambda build: Shifted()).stage("b", lambda build: Shifted(shape=("B", 2, 4))),
            r"input 'shift' at b: expected f32\[B,2,4\] with .*; found f32\[2,1,4\]",
        ),
        (INPUT.stage("a", lambda build: Shifted(shape=("Q",))), "input 'shift': axis 'Q' has no size"),
        (
            INPUT.stage("a", lambda build: Shifted("x", ("T", 4))),
            r"input 'x' at a: expected f32\[T,4\]; found f32\[2,3,4\]",
        ),
        (INPUT.custom("a", lambda flow, x: flow.input("y", (1,), "f33")), "input 'y': unknown dtype 'f33'"),
    ],
)
def test_declared_inputs_that_contradict_others(recipe: ModelFlow, message: str):
    with pytest.raises((OpError, ConfigError), match=message):
        recipe.build(PROFILE).arguments()


def test_a_call_without_the_tensor_of_a_declared_input():
    recipe = INPUT.stage("a", lambda build: Shifted())
    with pytest.raises(OpError, match=r"input 'shift' at a: the block declares it.*give it after x"):
        recipe.build(PROFILE)(EagerExecutionContext(), X)
    model = recipe.build(PROFILE)
    model.arguments()
    with pytest.raises(OpError, match=r"flow 'm': expected 2 tensors \(x, shift\); found 1"):
        model(EagerExecutionContext(), X)


def _scaled(factor: float) -> Any:
    return lambda flow, x: flow.emit("mul", x, factor)


def test_an_included_recipe_and_a_layer_have_residuals_of_their_own():
    inner = (
        ModelFlow("inner").custom("twice", _scaled(2.0)).store_residual().custom("half", _scaled(0.5)).add_residual()
    )
    expected = X + 3 * X  # the inner result is 2 x + x
    for recipe in (
        INPUT.store_residual().include("inner", inner).add_residual(),
        INPUT.store_residual().repeat_layers(1, inner).add_residual(),
        INPUT.store_residual().include("outer", ModelFlow("outer").include("inner", inner)).add_residual(),
    ):
        actual = recipe.build(PROFILE)(EagerExecutionContext(), X)["output"].numpy()
        np.testing.assert_allclose(actual, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (
            INPUT.include("inner", ModelFlow("inner").store_residual()),
            r"inner: a residual is stored and never added: put \.add_residual",
        ),
        (
            INPUT.repeat_layers(2, ModelFlow("layer").store_residual()),
            r"layers\.0: a residual is stored and never added",
        ),
        (
            INPUT.store_residual().include("inner", ModelFlow("inner").add_residual()),
            "add_residual at inner: none is stored: .store_residual.* comes first",
        ),
    ],
)
def test_residuals_do_not_cross_the_border_of_a_recipe(recipe: ModelFlow, message: str):
    with pytest.raises(OpError, match=message):
        recipe.build(PROFILE).trace()


def test_what_a_layer_keeps_is_the_layers():
    def reading(flow: FlowContext, x: FlowValue) -> FlowValue:
        return flow.emit("add", flow.emit("add", x, flow.named("q")), flow.named("first"))

    layer = ModelFlow("layer").custom("twice", _scaled(2.0)).keep("q").custom("reading", reading)
    recipe = INPUT.keep("first").repeat_layers(3, layer)
    expected = X
    for _ in range(3):
        expected = 4 * expected + X
    actual = recipe.build(PROFILE)(EagerExecutionContext(), X)["output"].numpy()
    np.testing.assert_allclose(actual, expected, rtol=1e-6)
    with pytest.raises(OpError, match="value 'q' at after: not found; available: first"):
        recipe.custom("after", lambda flow, x: flow.named("q")).build(PROFILE).trace()
    with pytest.raises(OpError, match=r"value 'first' at layers\.0: the name is taken"):
        INPUT.keep("first").repeat_layers(2, ModelFlow("layer").keep("first")).build(PROFILE).trace()


def test_bindings_may_be_without_a_mask():
    rope = RopeConfig(rotated=4, trained_length=64)
    recipe = INPUT.rope_tables(rope).stage("attn", lambda build: Attention(AttentionConfig(4, 2, 1, 4)))
    fields: Any = {"sequence": 1, "batch": 2, "max_sequence": 5, "memory": Memory.BINDINGS}
    masked, plain = (recipe.build(CompileProfile(name="m", **fields, masked=flag)) for flag in (True, False))
    names = [argument.name for argument in masked.arguments()]
    assert [argument.name for argument in plain.arguments()] == [name for name in names if name != "mask"]
    ctx, random = context_of(masked), np.random.default_rng(7)
    cos, sin = (table.numpy() for table in rope_tables(ctx, rope, ctx.ops.constant([5])))
    key, value = random.standard_normal((2, 2, 1, 5, 4)).astype(np.float32)
    one = X[:, :1]
    expected = masked(ctx, one, cos, sin, np.zeros((1, 6), np.float32), key, value)
    actual = plain(ctx, one, cos, sin, key, value)
    assert list(actual) == list(expected)
    for name, tensor in expected.items():
        np.testing.assert_allclose(actual[name].numpy(), tensor.numpy(), rtol=1e-6)
    for wrong in ({"sequence": 2}, {"memory": Memory.CACHES}):
        with pytest.raises(ConfigError, match="masked: false needs memory bindings and sequence 1"):
            CompileProfile(name="m", **{**fields, **wrong}, masked=False)
    with pytest.raises(ConfigError, match="masked: a window is a mask, and profile 'm' has none"):
        INPUT.rope_tables(rope, (3,)).build(CompileProfile(name="m", **fields, masked=False))


class HandMade(Block):
    """Gated delta rule behind a convolution, written with ops: one head of 4, its state kept by the flow."""

    def __init__(self, build: BuildContext) -> None:
        self.conv = CausalConv(12, 3, dtype=build.dtype)
        self.qkv, self.gates = Linear(4, 12, dtype=build.dtype), Linear(4, 2, dtype=build.dtype)

    def cache_layout(self, batch: int, capacity: int) -> CacheLayout:
        del capacity
        return delta_layout(TensorSpec((batch, 2, 12), "f32"), TensorSpec((batch, 1, 4, 4), "f32"))

    def run(self, flow: FlowContext, *values: FlowValue) -> FlowValue:
        (x,), ops, ctx, before = values, flow.ctx.ops, flow.ctx, flow.delta_state(self)
        qkv, conv = self.conv(ctx, flow.run(self.qkv, x).tensor, before.conv, flow.count)
        heads = ops.reshape(qkv, (*x.shape[:2], 3, 4))
        q, k, v = ops.split(heads, (1, 1, 1), 2)
        g, beta = ops.split(flow.run(self.gates, x).tensor, (1, 1), 2)
        g, beta = ops.negate(ops.softplus(g)), ops.logistic(beta)
        if flow.count is not None:
            is_real = ops.less(ops.iota((x.shape[1], 1)), flow.count)
            g, beta = ops.select(is_real, g, 0.0), ops.select(is_real, beta, 0.0)
        o, delta = ops.gated_delta_rule(ops.l2_norm(q), ops.l2_norm(k), v, g, beta, before.delta)
        flow.store_delta_state(self, DeltaState(conv, delta))
        return flow.value(ops.reshape(o, x.shape), x.spec)


def test_a_block_keeps_gated_delta_state_in_a_typed_slot():
    recipe = ModelFlow("m").input("x", ("B", "T", 4)).repeat_layers(2, HandMade).last_token()
    whole = recipe.build(CompileProfile.preset("training", batch=2, sequence=9))
    ctx = EagerExecutionContext(RandomWeights(whole))
    x = np.random.default_rng(11).standard_normal((2, 9, 4)).astype(np.float32)
    expected = whole(ctx, x)["output"].numpy()
    prefill = recipe.build(CompileProfile.preset("prefill", batch=2, sequence=6, max_sequence=16))
    names = ["x", "position", "last", *(f"layers.{i}.{part}_state" for i in range(2) for part in ("conv", "delta"))]
    assert [argument.name for argument in prefill.arguments()] == names
    states = [np.zeros(argument.spec.shape, np.float32) for argument in prefill.arguments()[3:]]
    padded = np.concatenate([x[:, :4], np.full((2, 2, 4), 9, np.float32)], 1)
    y, *states = (tensor.numpy() for tensor in prefill(ctx, padded, np.int32(0), np.int32(3), *states).values())
    np.testing.assert_allclose(y, expected[:, 3], rtol=1e-5, atol=1e-6)
    decode = recipe.build(CompileProfile.preset("decode", batch=2, max_sequence=16))
    for position in range(4, 9):
        results = decode(ctx, x[:, position : position + 1], np.int32(position), *states)
        y, *states = (tensor.numpy() for tensor in results.values())
        np.testing.assert_allclose(y, expected[:, position], rtol=1e-5, atol=1e-6)


def test_states_are_held_to_their_layout():
    class Wrong(HandMade):
        def run(self, flow: FlowContext, *values: FlowValue) -> FlowValue:
            state = flow.delta_state(self)
            flow.store_delta_state(self, DeltaState(state.conv, state.conv))
            return values[0]

    class Other(HandMade):
        def cache_layout(self, batch: int, capacity: int) -> CacheLayout:
            spec = cache_spec(batch, 1, capacity, 4, "f32")
            return kv_layout(spec, spec)

    with pytest.raises(OpError, match=r"delta_state of 'a': expected f32\[2,1,4,4\]; found f32\[2,2,12\]"):
        INPUT.stage("a", Wrong).build(PROFILE).trace()
    with pytest.raises(OpError, match=r"delta_state of 'a': expected a cache_layout from delta_layout"):
        INPUT.stage("a", Other).build(PROFILE).trace()
