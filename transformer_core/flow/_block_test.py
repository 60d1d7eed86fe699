"""Blocks of another package, and what happens to those that break the protocol."""

from typing import Any

import numpy as np
import pytest

from lang_core import EagerExecutionContext, EagerTensor, Module, OpError, Parameter, TensorSpec
from transformer_core.flow import Block, CompileProfile, FlowContext, FlowValue, ModelFlow
from transformer_core.layers._linear import Linear
from transformer_core.layers._norm import RMSNorm
from transformer_core.layers._rope_config import RopeConfig
from transformer_core.layers._weights_testing import RandomWeights, context_of

PROFILE = CompileProfile.preset("encoder", sequence=3)
X = np.arange(12, dtype=np.float32).reshape(3, 4) / 7
NO_TENSOR: Any = X
INPUT = ModelFlow("m").input("x", ("T", 4))


class Adapter(Block):
    """Low-rank: ``x + x A B``; an output of its own beside it."""

    def __init__(self, size: int, rank: int) -> None:
        self.down = Linear(size, rank)
        self.up = Linear(rank, size)
        self.gain = Parameter((size,))

    def run(self, flow: FlowContext, *values: FlowValue) -> FlowValue:
        (x,) = values
        low = flow.side_output("low", flow.run(self.down, x), ("T", 2), "f32")
        more = flow.emit("mul", flow.run(self.up, low), flow.ctx.parameter(self.gain), spec=x.spec)
        return flow.emit("add", x, more, spec=x.spec)


def test_a_block_of_another_package_needs_nothing_of_ours_changed():
    model = INPUT.repeat_layers(2, lambda build: Adapter(4, 2)).build(PROFILE)
    assert [path for path, _ in model.named_parameters()][:3] == [
        "layers.0.down.weight",
        "layers.0.up.weight",
        "layers.0.gain",
    ]
    results = model(context_of(model), X)
    assert list(results) == ["output", "layers.0.low", "layers.1.low"]
    expected, weights = X, RandomWeights(model)
    for index in range(2):
        down, up, gain = (weights.read(f"layers.{index}.{name}") for name in ("down.weight", "up.weight", "gain"))
        np.testing.assert_allclose(results[f"layers.{index}.low"].numpy(), expected @ down.T, rtol=1e-5)
        expected = expected + (expected @ down.T) @ up.T * gain
    np.testing.assert_allclose(results["output"].numpy(), expected, rtol=1e-5)


class Wrong(Block):
    """Hands on what it was told to."""

    def __init__(self, result: Any) -> None:
        self._result = result

    def run(self, flow: FlowContext, *values: FlowValue) -> Any:
        return self._result(flow, values[0])


def _claims(shape: tuple[int, ...]) -> Any:
    return lambda flow, x: FlowValue(x.tensor, TensorSpec(shape, "f32"))


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (_claims((3, 5)), r"inner\.bad \(Wrong\): the value is declared as f32\[3,5\], and its tensor is f32\[3,4\]"),
        (
            lambda flow, x: x.tensor,
            r"inner\.bad \(Wrong\): expected a FlowValue; found a EagerTensor: return FlowValue",
        ),
        (lambda flow, x: None, r"inner\.bad \(Wrong\): expected a FlowValue; found a NoneType"),
        (
            lambda flow, x: FlowValue(NO_TENSOR, x.spec),
            r"inner\.bad \(Wrong\): expected a FlowValue of a tensor; found one of a nd",
        ),
        (lambda flow, x: (x, x), r"inner\.bad \(Wrong\): expected 1 values; found 2"),
        (
            lambda flow, x: flow.value(x.tensor, TensorSpec((4,), "f32")),
            r"inner\.bad: the value is declared as f32\[4\]",
        ),
        (
            lambda flow, x: flow.emit("add", x, x, spec=TensorSpec((3,), "f32")),
            r"emit 'add' at inner\.bad: expected f32",
        ),
        (lambda flow, x: flow.stream("img"), r"stream 'img' at inner\.bad: not found; available: none"),
        (lambda flow, x: flow.input("y"), r"input 'y' at inner\.bad: not found; available: x"),
        (lambda flow, x: flow.read("xx"), r"value 'xx' at inner\.bad: not found; available: x; did you mean 'x'"),
        (lambda flow, x: flow.step, r"inner\.bad needs RoPE's tables: put \.rope_tables\(\.\.\) before this stage"),
        (
            lambda flow, x: flow.side_output("s", x, ("T", 5)),
            r"side output 'inner.bad.s': expected f32\[T,5\] with T = 3;",
        ),
        (lambda flow, x: flow.side_output("s", x, None, "bf16"), r"side output 'inner.bad.s': expected bf16\[3,4\]"),
        (
            lambda flow, x: flow.side_output("s", flow.side_output("s", x)),
            "side output 'inner.bad.s': the name is taken",
        ),
        (
            lambda flow, x: flow.keep("k", flow.keep("k", x)),
            r"value 'k' at inner\.bad: the name is taken: a value is kept",
        ),
        (lambda flow, x: flow.load_param("w"), r"load_param\('w'\) at inner\.bad: the flow was built without weights"),
    ],
)
def test_a_block_that_does_otherwise_than_it_says_is_named(result: Any, message: str):
    recipe = INPUT.include("inner", ModelFlow("inner").stage("bad", lambda build: Wrong(result)))
    with pytest.raises(Exception, match=message):
        recipe.stage("after", lambda build: Wrong(lambda flow, x: x)).build(PROFILE)(EagerExecutionContext(), X)


def test_a_claim_is_checked_when_recording_by_specs_too():
    recipe = INPUT.stage("bad", lambda build: Wrong(_claims((1,))))
    with pytest.raises(OpError, match=r"bad \(Wrong\): the value is declared as f32\[1\]"):
        recipe.build(PROFILE).trace()


def test_a_layer_that_gives_another_shape_is_named():
    recipe = INPUT.repeat_layers(3, lambda build: Linear(4, 4 + build.index))
    model = recipe.build(PROFILE)
    with pytest.raises(
        OpError, match=r"layers\.1 \(Linear\): a repeated layer gives what it takes, f32\[3,4\]; found f32"
    ):
        model(context_of(model), X)


def test_a_module_that_hands_on_no_tensor_is_named():
    class Shape(Module):
        def forward(self, ctx: Any, x: Any) -> Any:
            return x.shape

    with pytest.raises(OpError, match=r"shape \(Shape\): expected 1 values; found 2"):
        INPUT.stage("shape", lambda build: Shape()).build(PROFILE).trace()


def test_custom_stages_are_functions_below_a_name():
    seen: list[str] = []

    def scaled(flow: FlowContext, x: FlowValue) -> FlowValue:
        seen.append(flow.module_path)
        return flow.emit("mul", x, 2.0)

    model = INPUT.include("a", ModelFlow("a").custom("scaled", scaled)).build(PROFILE)
    np.testing.assert_array_equal(model(EagerExecutionContext(), X)["output"].numpy(), 2 * X)
    assert seen == ["a.scaled"]
    wrong: Any = lambda flow, x: flow.value(x.tensor).tensor  # noqa: E731
    with pytest.raises(OpError, match=r"odd \(custom\): expected a FlowValue; found a EagerTensor"):
        INPUT.custom("odd", wrong).build(PROFILE)(EagerExecutionContext(), X)


def test_streams_are_lanes_that_blocks_of_several_take_and_give():
    class Mix(Module):
        """Each gets the other's mean, times a third value."""

        def forward(self, ctx: Any, a: Any, b: Any, gain: Any) -> Any:
            ops = ctx.ops
            means = [ops.mul(ops.mean(x, 0, keepdims=True), gain) for x in (a, b)]
            return ops.add(a, means[1]), ops.add(b, means[0])

    recipe = (
        ModelFlow("two")
        .input("gain", (1,), "f32")
        .keep("gain")
        .input("a", (3, 4))
        .store_stream("a")
        .input("b", (5, 4))
        .store_stream("b")
        .repeat_layers(2, lambda build: Mix(), streams=["a", "b"], reads=["gain"])
        .side_output("mixed", (3, 4), "f32")
        .load_stream("b")
    )
    b, gain = np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4), np.array([0.5], np.float32)
    results = recipe.build(PROFILE)(EagerExecutionContext(), gain, X, b)
    first, second = X, b
    for _ in range(2):
        first, second = first + second.mean(0) * 0.5, second + first.mean(0) * 0.5
    np.testing.assert_allclose(results["output"].numpy(), second, rtol=1e-5)
    np.testing.assert_allclose(results["mixed"].numpy(), first, rtol=1e-5)
    with pytest.raises(OpError, match=r"layers\.0 \(Mix\): expected 1 values; found 2"):
        INPUT.repeat_layers(1, lambda build: Mix(), reads=["x", "x"]).build(PROFILE).trace()
    with pytest.raises(OpError, match="stream 'c' at the root: not found; available: a, b"):
        recipe.load_stream("c").build(PROFILE).trace()


def test_side_outputs_are_chosen_by_the_profile():
    recipe = INPUT.side_output("first").stage("norm", lambda build: RMSNorm(4)).side_output("second")
    both = recipe.build(PROFILE).trace().results
    assert list(both) == ["output", "first", "second"]
    one = CompileProfile.preset("encoder", sequence=3, outputs=["second"])
    assert list(recipe.build(one).trace().results) == ["output", "second"]
    other = CompileProfile.preset("encoder", sequence=3, outputs=["secnd"])
    with pytest.raises(
        OpError, match="'secnd' is no side output of flow 'm'; available: first, second; did you mean 'sec"
    ):
        recipe.build(other).trace()
    with pytest.raises(OpError, match="side output 'output': the model's result has this name"):
        INPUT.side_output("output").build(PROFILE).trace()


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (INPUT.store_residual().store_residual(), "store_residual at the root: one is stored already"),
        (INPUT.add_residual(), "add_residual at the root: none is stored"),
        (INPUT.store_residual(), "flow 'm': a residual is stored and never added"),
        (INPUT.lm_head(tied=True, name="head"), "the model's size is not known"),
        (INPUT.rows_at("x"), r"rows_at 'x' at the root: expected \[B, T, D\] and \[B\]; found f32\[3,4\]"),
        (INPUT.rope_tables(RopeConfig(rotated=4), (3,)), "windows: a window looks back, and profile 'forward' is not"),
    ],
)
def test_stages_in_the_wrong_order(recipe: ModelFlow, message: str):
    with pytest.raises(Exception, match=message):
        recipe.build(PROFILE).trace()


def test_what_is_added_to_a_residual_is_scaled():
    recipe = INPUT.store_residual().custom("squared", lambda flow, x: flow.emit("mul", x, x))
    for scale in (1.0, 0.5):
        model = recipe.add_residual(scale).build(PROFILE)
        np.testing.assert_array_equal(model(EagerExecutionContext(), X)["output"].numpy(), X + scale * (X * X))


def test_rows_at_takes_a_row_of_each_sequence():
    recipe = ModelFlow("m").input("rows", ("B",), "i32").input("x", ("B", "T", 2)).rows_at("rows")
    x, rows = np.arange(24, dtype=np.float32).reshape(3, 4, 2), np.array([3, 0, 2], np.int32)
    actual = recipe.build(PROFILE)(EagerExecutionContext(), rows, x)["output"]
    assert isinstance(actual, EagerTensor)
    np.testing.assert_array_equal(actual.numpy(), x[np.arange(3), rows])


def test_last_token_is_a_row_where_the_profile_wants_it():
    recipe = ModelFlow("m").input("x", ("B", "T", 2)).last_token()
    x = np.arange(24, dtype=np.float32).reshape(3, 4, 2)
    last = CompileProfile.preset("encoder", batch=3, sequence=4, rows="last")
    model = recipe.build(last)
    assert [argument.name for argument in model.arguments()] == ["x", "last"]
    np.testing.assert_array_equal(model(EagerExecutionContext(), x, np.int32(1))["output"].numpy(), x[:, 1])
    whole = recipe.build(CompileProfile.preset("encoder", sequence=4))
    np.testing.assert_array_equal(whole(EagerExecutionContext(), x)["output"].numpy(), x)
    with pytest.raises(OpError, match=r"last_token at the root: expected \[B, T, D\]; found f32\[4,2\]"):
        ModelFlow("m").input("x", ("T", 2)).last_token().build(last).trace()
