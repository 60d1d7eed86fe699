"""Blocks as private functions: alike blocks once, the same results, the same text streamed and buffered.

By default a third of the drawn programs runs; with TAPELINE_LONG=1 in the environment all.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compile_hlo import LoweredModule, lower_module
from compile_hlo.emit import ArgumentParameters, ExternalParameters
from compile_hlo.portable import interpret
from lang_core import Argument, EagerExecutionContext, EntryPoint, Parameter, TensorSpec
from tests.streaming import _programs
from tests.streaming._reference import lower_graphs
from transformer_core.models import DecoderConfig, DecoderLM, entry_points

SPEC = _programs.SPEC


def lowered(points: Any, streaming: bool) -> str:
    return lowered_with_module(points, streaming)[0]


def lowered_with_module(points: Any, streaming: bool) -> tuple[str, LoweredModule]:
    pieces: list[str] = []
    module = lower_module(points, pieces.append, ExternalParameters(), streaming=streaming, block_functions=True)
    return "".join(pieces), module


@settings(max_examples=200 if os.environ.get("TAPELINE_LONG") else 70, deadline=None)
@given(_programs.programs(), st.lists(st.integers(0, 999), min_size=1, max_size=4))
def test_streamed_is_buffered(steps: Any, outputs: list[int]) -> None:
    point = _programs.entry_point(steps, outputs)
    text, module = lowered_with_module([point], streaming=True)
    assert (text, module) == lowered_with_module([point], streaming=False)
    whole, known = lower_graphs([point], ExternalParameters())
    known.functions[0].largest_stretch = module.functions[0].largest_stretch
    assert (text, module) == (whole, known)


def _decoder(**changes: Any) -> DecoderLM:
    values = {
        "architectures": ["Qwen2ForCausalLM"],
        "vocab_size": 11,
        "hidden_size": 12,
        "intermediate_size": 20,
        "num_hidden_layers": 6,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 64,
    }
    return DecoderLM(DecoderConfig.from_hf(values | changes))


def test_alike_layers_are_one_function_and_unlike_ones_are_not() -> None:
    alike = lowered(entry_points(_decoder(), names=("forward",), sequence=5), streaming=True)
    assert alike.count("func.func private") == 1
    assert alike.count(" call @block.model.layers.N(") == 6
    assert "// model.layers.N.self_attn.q_proj" in alike
    windowed = _decoder(use_sliding_window=True, sliding_window=3, max_window_layers=4)
    unlike = lowered(entry_points(windowed, names=("prefill",), sequence=5, max_sequence=16), streaming=True)
    assert unlike.count("func.func private") >= 1
    assert unlike.count(" call @block") == 6


def test_text_does_not_grow_by_the_layers_bodies() -> None:
    def size(layers: int) -> int:
        points = entry_points(_decoder(num_hidden_layers=layers), names=("forward",), sequence=5)
        return sum("stablehlo." in line for line in lowered(points, streaming=True).splitlines())

    assert size(12) == size(3)


def _interpreted(point: EntryPoint, directory: Path, block_functions: bool, inputs: list[np.ndarray]) -> Any:
    text = directory / f"{block_functions}.mlir"
    with text.open("w") as file:
        lower_module([point], file.write, ArgumentParameters(), block_functions=block_functions)
    return interpret(text, inputs)


class Weights:
    def spec(self, key: str) -> TensorSpec:
        return SPEC

    def read(self, key: str) -> np.ndarray:
        return np.full(SPEC.shape, float(key[-1]), np.float32)


def test_both_forms_compute_what_the_eager_context_does(tmp_path: Path) -> None:
    def parameter(index: int) -> Parameter:
        made = Parameter(SPEC.shape)
        made._name = f"weight{index}"
        return made

    def fn(ctx: Any, x: Any) -> dict[str, Any]:
        ops = ctx.ops
        half = ops.constant(0.5)
        kept = x
        for index in range(3):
            with ctx.block(f"layers.{index}"):
                y = ops.mul(ops.add(x, ctx.parameter(parameter(index))), half)
                with ctx.block("inner"):
                    y = ops.exp(y)
                x, kept = ops.sub(y, kept), ops.add(y, 1.0)
        return {"x": x, "kept": kept, "same": kept}

    point = EntryPoint("main", fn, (Argument("x", SPEC),))
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(SPEC.shape)
    ctx = EagerExecutionContext(Weights())  # pyright: ignore[reportArgumentType]
    expected = [tensor.numpy() for tensor in point(ctx, ctx.constant(x)).values()]
    weights = [Weights().read(f"weight{index}") for index in range(3)]
    flat, called = (_interpreted(point, tmp_path, form, [x, *weights]) for form in (False, True))
    for one, other, wanted in zip(flat, called, expected, strict=True):
        np.testing.assert_array_equal(other, one)
        np.testing.assert_allclose(one, wanted, rtol=1e-5)


@pytest.mark.parametrize("streaming", [False, True])
def test_a_block_of_nothing_but_leaves_is_no_function(streaming: bool) -> None:
    def fn(ctx: Any, x: Any) -> dict[str, Any]:
        with ctx.block("dead"):
            ctx.ops.exp(x)
        with ctx.block("constant"):
            c = ctx.ops.constant(2.0)
        return {"y": ctx.ops.mul(x, c)}

    text = lowered([EntryPoint("main", fn, (Argument("x", SPEC),))], streaming)
    assert "call" not in text
    assert "dense<2.0>" in text
