"""The Gated DeltaNet block against transformers': at once, in pieces, and recorded."""

from typing import Any

import numpy as np
import pytest

from compile_dag import evaluate, record
from lang_core import EagerExecutionContext, Tensor, TensorSpec
from tests.goldens.gated_delta_sizes import BATCH, CASES, PIECES
from tests.goldens.golden_files import GatedDeltaGolden, read_gated_delta_golden
from transformer_core import DeltaState, GatedDeltaNet

CTX = EagerExecutionContext()
_ALL = pytest.mark.parametrize("name", CASES)


def _block(name: str) -> tuple[GatedDeltaNet, GatedDeltaGolden, dict[str, Tensor]]:
    sizes, golden = CASES[name], read_gated_delta_golden(name)
    block = GatedDeltaNet(
        sizes.size,
        sizes.key_heads,
        sizes.value_heads,
        sizes.key_size,
        sizes.value_size,
        taps=sizes.taps,
        norm_eps=sizes.norm_eps,
        grouped=sizes.grouped,
    )
    assert {path for path, _ in block.named_parameters()} == set(golden.weights)
    return block, golden, {key: CTX.ops.constant(array) for key, array in golden.weights.items()}


def _empty(block: GatedDeltaNet) -> DeltaState:
    return DeltaState(*(CTX.ops.zeros(spec.shape, spec.dtype) for spec in block.cache_layout(BATCH, 0).specs.values()))


def _conv_state(block: GatedDeltaNet, golden: GatedDeltaGolden) -> np.ndarray:
    """Returns transformers' last inputs of the convolution in the block's order: q, k and v of head after head."""
    if not block.grouped:
        return golden.conv
    keys = block.key_heads * block.key_size
    parts = np.split(golden.conv, (keys, 2 * keys), 2)
    heads = [part.reshape(*part.shape[:2], block.key_heads, -1) for part in parts]
    return np.concatenate(heads, 3).reshape(golden.conv.shape)


def _near(actual: Any, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(actual.numpy(), wanted, rtol=1e-5, atol=5e-6 * np.abs(wanted).max())


@_ALL
def test_at_once(name: str) -> None:
    block, golden, weights = _block(name)
    with CTX.parameters_from(weights):
        y, none = block(CTX, CTX.ops.constant(golden.x))
    assert none is None
    _near(y, golden.whole)


@_ALL
def test_prefill_chunked_prefill_and_decode(name: str) -> None:
    block, golden, weights = _block(name)
    state, at, actual = _empty(block), 0, []
    with CTX.parameters_from(weights):
        for size in PIECES:
            y, state = block(CTX, CTX.ops.constant(golden.x[:, at : at + size]), state)
            actual.append(y)
            at += size
    _near(CTX.ops.concat(actual, 1), golden.pieces)
    _near(state.conv, _conv_state(block, golden))
    _near(state.delta, golden.delta)


@_ALL
def test_recorded(name: str) -> None:
    """Weights are inputs of the graph, as are the states."""
    block, golden, weights = _block(name)

    def step(ctx: Any, x: Any, conv: Any, delta: Any, *given: Any) -> Any:
        with ctx.parameters_from(dict(zip(weights, given, strict=True))):
            y, state = block(ctx, x, DeltaState(conv, delta))
        return y, state.conv, state.delta

    specs = [
        TensorSpec(golden.x.shape, "f32"),
        *block.cache_layout(BATCH, 0).specs.values(),
        *(x.spec for x in weights.values()),
    ]
    names = ["x", "conv", "delta", *weights]
    graph = record(step, *specs, input_names=names, name="step")
    state = _empty(block)
    inputs = {"x": CTX.ops.constant(golden.x), "conv": state.conv, "delta": state.delta, **weights}
    y, conv, delta = evaluate(graph, CTX, inputs).values()
    _near(y, golden.whole)
    _near(conv, _conv_state(block, golden))
    _near(delta, golden.delta)
