"""Entry points of a model whose layers keep different things."""

from typing import Any

import numpy as np
import pytest

from lang_core import EagerExecutionContext
from transformer_core.layers._weights_testing import context_of
from transformer_core.models import DecoderLM, entry_points
from transformer_core.models._tiny_testing import HYBRID

IDS = np.random.default_rng(5).integers(0, 31, (2, 41)).astype(np.int32)


class _Runner:
    """Runs entry points with the caches and states carried along."""

    def __init__(self, model: DecoderLM, ctx: EagerExecutionContext, capacity: int) -> None:
        self.model, self.ctx, self.capacity = model, ctx, capacity
        decode = entry_points(model, names=["decode"], batch=2, sequence=1, max_sequence=capacity)[0]
        specs = [argument.spec for argument in decode.arguments if argument.alias_result]
        self.kept = [np.zeros(spec.shape, spec.dtype.numpy) for spec in specs]

    def run(self, name: str, tokens: np.ndarray, *scalars: int) -> np.ndarray:
        sizes: Any = {"batch": 2, "sequence": tokens.shape[1], "max_sequence": self.capacity}
        inputs: Any = (tokens, *map(np.int32, scalars), *self.kept)
        results = entry_points(self.model, names=[name], **sizes)[0](self.ctx, *inputs)
        logits, *kept, _ = results.values()
        self.kept = [tensor.numpy() for tensor in kept]
        return logits.numpy()


@pytest.mark.parametrize("chunk", [1, 6, 16, 40])
def test_padded_pieces_and_decode_give_what_forward_gives(chunk):
    """Layers with a state must not see the padding, nor may those with a cache."""
    model = DecoderLM(HYBRID)
    ctx = context_of(model)
    expected = model(ctx, IDS).numpy()
    runner = _Runner(model, ctx, 48)
    for begin in range(0, 37, chunk):
        tokens = IDS[:, begin : min(begin + chunk, 37)]
        last = tokens.shape[1] - 1
        padded = np.pad(tokens, ((0, 0), (0, chunk - 1 - last)), constant_values=30)
        actual = runner.run("prefill", padded, begin, last)
        np.testing.assert_allclose(actual, expected[:, begin + last], rtol=1e-4, atol=1e-4)  # of up to 6
    for position in range(37, 41):
        actual = runner.run("decode", IDS[:, position : position + 1], position)
        np.testing.assert_allclose(actual, expected[:, position], rtol=1e-4, atol=1e-4)  # of up to 6


def test_arguments_are_named_by_what_a_layer_keeps():
    model = DecoderLM(HYBRID, "bf16")
    decode = entry_points(model, names=["decode"], sequence=9, max_sequence=9)[0]
    assert {a.name: repr(a.spec) for a in decode.arguments[2:]} == {
        "layers.0.conv_state": "bf16[1,2,32]",
        "layers.0.delta_state": "f32[1,4,5,3]",
        "layers.1.key_cache": "bf16[1,2,9,6]",
        "layers.1.value_cache": "bf16[1,2,9,6]",
        "layers.2.conv_state": "bf16[1,2,32]",
        "layers.2.delta_state": "f32[1,4,5,3]",
    }
    assert [a.alias_result for a in decode.arguments[2:]] == [a.name for a in decode.arguments[2:]]


def test_the_first_layers_alone_may_have_no_cache():
    model = DecoderLM(HYBRID, num_layers=1)
    ctx = context_of(model)
    expected = model(ctx, IDS[:, :5]).numpy()
    runner = _Runner(model, ctx, 8)
    runner.run("prefill", IDS[:, :4], 0, 3)
    np.testing.assert_allclose(runner.run("decode", IDS[:, 4:5], 4), expected[:, 4], rtol=1e-4, atol=1e-4)  # of up to 6
