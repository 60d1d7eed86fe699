"""RoPE tables against those of transformers, eagerly and from a recording."""

from typing import Any

import numpy as np
import pytest

from compile_dag import evaluate, record
from lang_core import EagerExecutionContext, TensorSpec
from tests.goldens.cases import ROPE_CASES, RopeCase
from tests.goldens.golden_files import RopeGolden, read_rope_golden
from transformer_core import RopeConfig, inverse_frequencies, rope_config_from_hf, rope_tables

_ALL = pytest.mark.parametrize("case", ROPE_CASES.values(), ids=ROPE_CASES)


def config_and_golden(case: RopeCase) -> tuple[RopeConfig, RopeGolden, int]:
    """Returns a case's configuration, its golden tables and the length of its sequence."""
    golden = read_rope_golden(case.name)
    return rope_config_from_hf(case.config, case.config["head_dim"]), golden, int(golden.positions.max()) + 1


def check_tables(actual: Any, golden: RopeGolden, rotated: int) -> None:
    """transformers computes frequencies in f32, we in f64: an angle a differs by up to 4e-7 a."""
    cos, sin = (table.numpy() for table in actual)
    half = rotated // 2
    room = 4e-7 * (np.max(golden.positions) + 1)
    np.testing.assert_allclose(cos, golden.cos, atol=room)
    np.testing.assert_allclose(sin[..., half:], golden.sin[..., half:], atol=room)
    np.testing.assert_array_equal(sin[..., :half], -sin[..., half:])


@_ALL
def test_frequencies_and_attention_factor(case: RopeCase) -> None:
    config, golden, length = config_and_golden(case)
    np.testing.assert_allclose(inverse_frequencies(config, length), golden.inv_freq, rtol=5e-7)
    assert config.attention_factor == pytest.approx(golden.attention_factor, rel=1e-12)


@_ALL
def test_tables(case: RopeCase) -> None:
    config, golden, length = config_and_golden(case)
    ctx = EagerExecutionContext()
    positions = ctx.ops.constant(golden.positions.astype(np.int32))
    check_tables(rope_tables(ctx, config, positions, length), golden, config.rotated)


@_ALL
def test_recorded_tables_of_a_length_known_at_run_time(case: RopeCase) -> None:
    config, golden, length = config_and_golden(case)
    specs = TensorSpec(golden.positions.shape, "i32"), TensorSpec((), "i32")
    graph = record(lambda ctx, positions, length: rope_tables(ctx, config, positions, length), *specs, name="tables")
    ctx = EagerExecutionContext()
    inputs = {"positions": golden.positions.astype(np.int32), "length": np.array(length, np.int32)}
    results = evaluate(graph, ctx, {name: ctx.ops.constant(value) for name, value in inputs.items()})
    check_tables(results.values(), golden, config.rotated)
