"""Streamed text is that of the whole graph, byte for byte, whatever the blocks and the outputs.

By default a third of the drawn programs runs; with TAPELINE_LONG=1 in the environment all.
"""

import gc
import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compile_dag import Value
from compile_hlo import LoweredModule, lower_module
from compile_hlo.emit import ArgumentParameters, ExternalParameters
from lang_core import Argument, EntryPoint, TensorSpec
from tests.streaming import _programs
from tests.streaming._reference import lower_graphs
from transformer_core.models import DecoderConfig, DecoderLM, entry_points

SPEC = _programs.SPEC
_LONG = bool(os.environ.get("TAPELINE_LONG"))


def lowered(points: Any, streaming: bool) -> tuple[str, LoweredModule]:
    pieces: list[str] = []
    module = lower_module(points, pieces.append, ExternalParameters(), streaming=streaming, block_functions=False)
    return "".join(pieces), module


def check_same(points: Any) -> str:
    buffered, one = lowered(points, streaming=False)
    streamed, other = lowered(points, streaming=True)
    assert streamed == buffered
    assert one == other  # results, parameters and node counts
    whole, known = lower_graphs(points, ExternalParameters(), block_functions=False)
    assert streamed == whole
    for function, stretched in zip(known.functions, one.functions, strict=True):
        function.largest_stretch = stretched.largest_stretch
    assert known == one
    return streamed


@settings(max_examples=300 if _LONG else 100, deadline=None)
@given(_programs.programs(), st.lists(st.integers(0, 999), min_size=1, max_size=4))
def test_random_block_programs(steps: Any, outputs: list[int]) -> None:
    check_same([_programs.entry_point(steps, outputs)])


@settings(max_examples=50 if _LONG else 20, deadline=None)
@given(_programs.programs(), _programs.programs())
def test_several_entry_points(first: Any, second: Any) -> None:
    points = [_programs.entry_point(first, [3]), _programs.entry_point(second, [5])]
    check_same([points[0], EntryPoint("other", points[1].fn, points[1].arguments)])


def _config(**changes: Any) -> DecoderConfig:
    values = {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 11,
        "hidden_size": 12,
        "intermediate_size": 20,
        "num_hidden_layers": 5,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 64,
    }
    return DecoderConfig.from_hf(values | changes)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("names", [("forward",), ("prefill", "decode"), ("decode", "forward")])
def test_a_decoder(names: tuple[str, ...], tied: bool) -> None:
    model = DecoderLM(_config(tie_word_embeddings=tied))
    text = check_same(entry_points(model, names=names, sequence=6, max_sequence=16))
    assert "// model.layers.4" in text


def test_dead_blocks_and_dead_results_of_live_blocks_go() -> None:
    def fn(ctx: Any, x: Any) -> dict[str, Any]:
        ops = ctx.ops
        with ctx.block("live"):
            kept, dropped = ops.exp(x), ops.sin(x)
        with ctx.block("dead"):
            ops.cos(dropped)
        return {"y": ops.add(kept, x), "kept": kept}

    point = EntryPoint("main", fn, (Argument("x", SPEC),))
    text = check_same([point])
    assert "exponential" in text
    assert "sine" not in text
    assert lowered([point], streaming=True)[1].functions[0].nodes_pruned == 2


def test_values_merged_in_one_block_stand_for_each_other_in_the_next() -> None:
    def fn(ctx: Any, x: Any) -> dict[str, Any]:
        ops = ctx.ops
        with ctx.block("first"):
            one, other = ops.exp(x), ops.exp(x)
        with ctx.block("second"):
            same, again = ops.sin(one), ops.sin(other)
        return {"y": ops.add(same, again), "other": other}

    text = check_same([EntryPoint("main", fn, (Argument("x", SPEC),))])
    assert text.count("exponential") == 1
    assert text.count("sine") == 1


def test_leaves_made_outside_are_written_in_each_block_that_uses_them() -> None:
    def fn(ctx: Any, x: Any) -> dict[str, Any]:
        half = ctx.ops.constant(0.5)
        for name in ("a", "b"):
            with ctx.block(name):
                x = ctx.ops.mul(x, half)
        return {"y": x}

    assert check_same([EntryPoint("main", fn, (Argument("x", SPEC),))]).count("dense<0.5>") == 2


@pytest.mark.parametrize("order", [None, ["model.norm.weight"]])
def test_parameters_as_arguments_are_streamed(order: list[str] | None) -> None:
    """A head names the parameters before its body: they are known when the body is planned."""
    points = entry_points(DecoderLM(_config()), names=("decode", "forward"), sequence=6, max_sequence=16)
    if order is not None:
        order = sorted(lower_module(points, lambda text: None, ArgumentParameters()).parameters())
    texts = []
    for streaming in (False, True):
        pieces: list[str] = []
        lower_module(points, pieces.append, ArgumentParameters(order), streaming=streaming)
        texts.append("".join(pieces))
    assert texts[0] == texts[1] == lower_graphs(points, ArgumentParameters(order))[0]


def test_the_order_of_parameters_as_arguments_is_the_forms() -> None:
    points = entry_points(DecoderLM(_config()), names=("decode", "forward"), sequence=6, max_sequence=16)
    buffered: list[str] = []
    first = lower_module(points, buffered.append, ArgumentParameters())
    for order in (None, sorted(first.parameters())):
        texts: list[list[str]] = [[], []]
        for text, streaming in zip(texts, (False, True), strict=True):
            lower_module(points, text.append, ArgumentParameters(order), streaming=streaming)
        assert "".join(texts[0]) == "".join(texts[1])
        assert ("".join(texts[1]) == "".join(buffered)) == (order is None)


def test_nothing_of_a_block_lives_on() -> None:
    """Checks that of forty blocks only the present one's values are alive."""
    alive: list[int] = []

    def fn(ctx: Any, x: Any) -> dict[str, Any]:
        for i in range(40):
            with ctx.block(f"layers.{i}"):
                x = ctx.ops.add(ctx.ops.exp(x), ctx.ops.sin(x))
            alive.append(sum(isinstance(entry, Value) for entry in gc.get_objects()))
        return {"y": x}

    gc.collect()
    lowered([EntryPoint("main", fn, (Argument("x", TensorSpec((2, 3), "f32")),))], streaming=True)
    assert max(alive[5:]) <= min(alive[5:]) + 8


@pytest.mark.parametrize("block_functions", [False, True])
def test_values_of_a_loop_outside_of_blocks_are_forgotten(block_functions: bool) -> None:
    """Else a constant that is made soon after, and gets the identity of one of them, gets its name too."""

    def model(ctx: Any, x: Any) -> dict[str, Any]:
        ops = ctx.ops
        for index in range(40):

            def body(count: Any, y: Any) -> Any:
                return ops.add(count, count), ops.exp(ops.exp(ops.exp(ops.exp(y))))

            x = ops.while_loop(lambda count, y: ops.less(count, count), body, (ops.constant(0, "i32"), x))[1]
            with ctx.block(f"layers.{index}"):
                x = ops.negate(x)
            for constant in [ops.constant(np.full((2, 3), 10 * index + place, np.float32)) for place in range(12)]:
                x = ops.add(x, constant)
        return {"y": x}

    point = EntryPoint("main", model, (Argument("x", TensorSpec((2, 3), "f32")),))
    texts = []
    for streaming in (True, False):
        pieces: list[str] = []
        form = ExternalParameters()
        lower_module([point], pieces.append, form, streaming=streaming, block_functions=block_functions)
        texts.append("".join(pieces))
    assert texts[0] == texts[1]
