"""A diffusion transformer with a stream of image tokens, one of text tokens and a vector that modulates both."""

from pathlib import Path

import numpy as np
import pytest

from lang_core import ExecutionContext, Module, Tensor, WeightSource
from tests.flow._support import eager, inputs_of, interpreted, lowered, random_weights, recorded
from transformer_core import Activation, FeedForward, Linear, RMSNorm, grouped_attention
from transformer_core.flow import Block, BuildContext, CompileProfile, FlowContext, FlowModel, FlowValue, ModelFlow

SIZE, HEADS, HEAD = 12, 3, 4


class Modulation(Module):
    """Scale and gate [1, 1, D] of a vector [1, D]."""

    def __init__(self) -> None:
        self.linear = Linear(SIZE, 2 * SIZE, bias=True)

    def forward(self, ctx: ExecutionContext, vector: Tensor) -> tuple[Tensor, ...]:
        made = ctx.ops.reshape(self.linear(ctx, ctx.ops.silu(vector)), (1, 1, 2 * SIZE))
        return ctx.ops.split(made, (SIZE, SIZE), 2)


class Lane(Module):
    """Modules of one stream."""

    def __init__(self) -> None:
        self.modulation = Modulation()
        self.norm = RMSNorm(SIZE)
        self.qkv = Linear(SIZE, 3 * HEADS * HEAD)
        self.proj = Linear(HEADS * HEAD, SIZE)
        self.mlp = FeedForward(SIZE, 20, activation=Activation.GELU_TANH)

    def heads(self, ctx: ExecutionContext, x: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
        """q, k and v, each [1, N, 1, T, H]."""
        ops = ctx.ops
        normed = ops.mul(self.norm(ctx, x), ops.add(scale, 1.0))
        parts = ops.split(self.qkv(ctx, normed), (HEADS * HEAD,) * 3, 2)
        return tuple(
            ops.transpose(ops.reshape(part, (1, x.shape[1], HEADS, 1, HEAD)), (0, 2, 3, 1, 4)) for part in parts
        )

    def finish(self, ctx: ExecutionContext, x: Tensor, heads: Tensor, gate: Tensor) -> Tensor:
        """The stream after attention and feed-forward, both gated."""
        ops = ctx.ops
        joined = ops.reshape(ops.transpose(heads, (0, 3, 1, 2, 4)), (1, x.shape[1], HEADS * HEAD))
        x = ops.add(x, ops.mul(gate, self.proj(ctx, joined)))
        return ops.add(x, ops.mul(gate, self.mlp(ctx, x)))


class JointBlock(Block):
    """Each of N streams attends over the tokens of all (as in Esser et al. 2024, arXiv:2403.03206)."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.lanes = [Lane() for _ in names]

    def run(self, flow: FlowContext, *values: FlowValue) -> tuple[FlowValue, ...]:
        *streams, vector = values
        ctx, ops = flow.ctx, flow.ctx.ops
        modulations = [lane.modulation(ctx, vector.tensor) for lane in self.lanes]
        parts = [
            lane.heads(ctx, x.tensor, scale)
            for lane, x, (scale, _) in zip(self.lanes, streams, modulations, strict=True)
        ]
        q, k, v = (ops.concat([part[i] for part in parts], 3) for i in range(3))
        k, v = (ops.reshape(head, (1, HEADS, head.shape[3], HEAD)) for head in (k, v))
        heads = ops.split(grouped_attention(ctx, q, k, v), [x.shape[1] for x in streams], 3)
        return tuple(
            flow.value(lane.finish(ctx, x.tensor, head, gate), x.spec)
            for lane, x, head, (_, gate) in zip(self.lanes, streams, heads, modulations, strict=True)
        )


def _recipe(names: tuple[str, ...] = ("img", "txt")) -> ModelFlow:
    recipe = ModelFlow("dit").input("vector", (1, SIZE)).keep("vector")
    for name, (tokens, channels) in zip(names, ((6, 5), (4, 7), (3, 9)), strict=False):

        def embed(build: BuildContext, channels: int = channels) -> Linear:
            return Linear(channels, SIZE, bias=True, dtype=build.dtype)

        recipe = recipe.input(name, (1, tokens, channels)).stage(f"{name}_in", embed).store_stream(name)
    return (
        recipe.repeat_layers(2, lambda build: JointBlock(names), name="blocks", streams=names, reads=["vector"])
        .load_stream("txt")
        .side_output("text_states", (1, 4, SIZE), "f32")
        .load_stream("img")
        .stage("out", lambda build: Linear(SIZE, 5))
        .result("velocity")
    )


def _model(names: tuple[str, ...] = ("img", "txt")) -> FlowModel:
    return _recipe(names).build(CompileProfile.preset("encoder", sequence=1))


def _expected(read: WeightSource, inputs: list[np.ndarray], names: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The same by the formulas, in float64."""
    vector, *streams = (array.astype(np.float64)[0] for array in inputs)

    def w(name: str) -> np.ndarray:
        return read.read(name).astype(np.float64)

    def linear(x: np.ndarray, name: str, bias: bool = False) -> np.ndarray:
        return x @ w(f"{name}.weight").T + (w(f"{name}.bias") if bias else 0)

    xs = [linear(x, f"{name}_in", True) for x, name in zip(streams, names, strict=True)]
    for index in range(2):
        lanes = [f"blocks.{index}.lanes.{i}" for i in range(len(xs))]
        mods = [linear(vector / (1 + np.exp(-vector)), f"{lane}.modulation.linear", True) for lane in lanes]
        qkv = []
        for x, lane, mod in zip(xs, lanes, mods, strict=True):
            normed = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * w(f"{lane}.norm.weight")
            qkv.append(linear(normed * (1 + mod[:SIZE]), f"{lane}.qkv").reshape(-1, 3, HEADS, HEAD))
        q, k, v = np.concatenate(qkv).transpose(1, 2, 0, 3)
        scores = q @ k.swapaxes(1, 2) / np.sqrt(HEAD)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        joint = (scores / scores.sum(-1, keepdims=True) @ v).swapaxes(0, 1).reshape(-1, HEADS * HEAD)
        begin = 0
        for i, (lane, mod) in enumerate(zip(lanes, mods, strict=True)):
            gate, rows = mod[SIZE:], joint[begin : begin + len(xs[i])]
            begin += len(rows)
            x = xs[i] + gate * linear(rows, f"{lane}.proj")
            inner = linear(x, f"{lane}.mlp.up_proj", True)
            inner = 0.5 * inner * (1 + np.tanh(np.sqrt(2 / np.pi) * (inner + 0.044715 * inner**3)))
            xs[i] = x + gate * linear(inner, f"{lane}.mlp.down_proj", True)
    return linear(xs[names.index("img")], "out"), xs[names.index("txt")]


@pytest.mark.parametrize("names", [("img", "txt"), ("img", "txt", "audio")])
def test_streams_meet_in_attention_and_keep_what_is_their_own(names: tuple[str, ...]):
    model = _model(names)
    weights, inputs = random_weights(model), inputs_of(model.entry_point())
    results = eager(model.entry_point(), weights, inputs)
    velocity, text = _expected(weights, inputs, names)
    np.testing.assert_allclose(results["velocity"][0], velocity, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(results["text_states"][0], text, rtol=2e-5, atol=2e-5)


def test_recorded_streamed_and_interpreted_it_is_the_same(tmp_path: Path):
    point, weights = _model().entry_point(), random_weights(_model())
    text = lowered([point])
    assert lowered([point], streaming=True) == text
    assert lowered([point], streaming=True, block_functions=False) == lowered([point], block_functions=False)
    inputs = inputs_of(point)
    expected = eager(point, weights, inputs)
    for results in (recorded(point, weights, inputs), interpreted(point, weights, inputs, tmp_path)):
        assert list(results) == ["velocity", "text_states"]
        for name, array in expected.items():
            np.testing.assert_allclose(results[name], array, rtol=1e-5, atol=1e-5)


def test_blocks_are_one_function_of_the_streams():
    text = lowered([_model().entry_point()])
    assert text.count("func.func private") == 1
    assert text.count("call @") == 2
