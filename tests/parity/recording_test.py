"""A recording computes the eager results bit for bit, and stays small."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compile_dag import ComputeGraph, evaluate, record
from lang_core import EagerExecutionContext, EntryPoint, as_dtype
from tests.goldens.cases import GoldenCase
from tests.goldens.samples import SAMPLE
from tests.parity._golden_models import empty_caches, opened, places, prefill_and_decode
from transformer_core import RopeConfig, RopeMode, apply_rope, rope_tables
from transformer_core.checkpoints import LLAMA_PRESETS, llama_config
from transformer_core.models import DecoderConfig, DecoderLM, entry_points


def recorded(entry: EntryPoint) -> ComputeGraph:
    names = [argument.name for argument in entry.arguments]
    return record(entry.fn, *[a.spec for a in entry.arguments], input_names=names, name=entry.name)


@pytest.mark.parametrize("case", SAMPLE.values(), ids=SAMPLE)
def test_recorded_entry_points_give_the_bits_of_eager_ones(case: GoldenCase, tmp_path: Path) -> None:
    prompt = np.array(case.prompt, np.int32)
    length = prompt.shape[1]
    with opened(case, tmp_path) as (model, ctx):
        prefill, decode = prefill_and_decode(model, case)
        fwd = entry_points(model, names=["forward"], batch=prompt.shape[0], sequence=length)[0]
        tokens = prompt[:, :1]
        caches: list[Any] = empty_caches(prefill)
        for entry, arguments in (
            (fwd, [prompt]),
            (prefill, [prompt, *places(prefill, 0, length - 1)]),
            (decode, [tokens, *places(decode, length)]),
        ):
            inputs: Any = [*arguments, *caches] if entry is not fwd else arguments
            eager = entry(ctx, *inputs)
            named = {a.name: ctx.ops.constant(value) for a, value in zip(entry.arguments, inputs, strict=True)}
            actual = evaluate(recorded(entry), ctx, named)
            assert list(actual) == list(eager)
            for name in eager:
                assert actual[name].spec == eager[name].spec
                assert actual[name].numpy().tobytes() == eager[name].numpy().tobytes(), f"{entry.name} {name}"
            caches = [eager[a.name].numpy() for a in entry.arguments if a.alias_result] or caches


@pytest.mark.parametrize("mode", RopeMode)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("shape", [(3, 6), (2, 3, 6), (2, 1, 2, 3, 9)])
def test_recorded_rope_gives_the_bits_of_the_views(mode: RopeMode, dtype: str, shape: tuple[int, ...]) -> None:
    config = RopeConfig(rotated=6, mode=mode)

    def rotate(ctx: Any, x: Any, positions: Any) -> Any:
        return apply_rope(ctx, x, *rope_tables(ctx, config, positions), mode)

    ctx = EagerExecutionContext()
    x = ctx.ops.cast(np.random.default_rng(0).standard_normal(shape, np.float32), dtype)
    positions = ctx.ops.constant(np.array([0, 7, 911], np.int32))
    graph = record(rotate, x.spec, positions.spec)
    assert "reverse" in {node.op.name for node in graph.nodes}
    actual = evaluate(graph, ctx, {"x": x, "positions": positions})["result"]
    assert actual.numpy().tobytes() == rotate(ctx, x, positions).numpy().tobytes()


@pytest.mark.parametrize(("dtype", "forward_ops", "cached_ops"), [("f32", 70, 72), ("bf16", 80, 82)])
def test_a_tinyllama_layer_is_few_ops(dtype: str, forward_ops: int, cached_ops: int) -> None:
    config = DecoderConfig.from_hf(llama_config(LLAMA_PRESETS["tinyllama-1.1b"], as_dtype("bf16")))
    model = DecoderLM(config, dtype)
    for entry in entry_points(model, names=["forward", "prefill", "decode"], sequence=32, max_sequence=64):
        graph = recorded(entry)
        blocks = Counter(str(node.block) for node in graph.nodes)
        assert set(blocks) == {"", *(f"model.layers.{i}" for i in range(22))}
        assert max(blocks[f"model.layers.{i}"] for i in range(22)) <= (
            forward_ops if entry.name == "forward" else cached_ops
        )
        assert blocks[""] <= 45
