import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lang_core import EagerExecutionContext, OpError
from transformer_core.layers._rope import apply_rope, inverse_frequencies, rope, rope_tables
from transformer_core.layers._rope_config import RopeConfig, RopeMode
from transformer_core.layers._rope_scaling import DynamicScaling, LinearScaling, LongropeScaling, YarnScaling

CTX = EagerExecutionContext()
tensor = CTX.ops.constant
MODES = st.sampled_from(RopeMode)


class RecordingLookalike(EagerExecutionContext):
    """Says that it records, so that the traceable path runs; computes eagerly."""

    @property
    def isRecording(self) -> bool:
        return True


@st.composite
def cases(draw: Any) -> tuple[RopeConfig, np.ndarray, np.ndarray]:
    """A config, x [.., T, H] of rank 2 to 5 with full or partial rotation, and positions [T]."""
    half, rest = draw(st.integers(1, 6)), draw(st.sampled_from([0, 0, 1, 5]))
    lead = draw(st.lists(st.integers(1, 3), max_size=3))
    tokens = draw(st.integers(1, 5))
    config = RopeConfig(rotated=2 * half, base=draw(st.floats(2, 1e6)), mode=draw(MODES))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    x = random.standard_normal((*lead, tokens, 2 * half + rest), np.float32)
    return config, x, random.integers(0, 1000, tokens).astype(np.int32)


def rotated_by_complex_numbers(x: np.ndarray, angles: np.ndarray, mode: RopeMode) -> np.ndarray:
    """The definition: each pair is a complex number, times e^(i angle). angles [T, R/2]."""
    half = angles.shape[-1]
    pairs = [(i, i + half) if mode is RopeMode.SPLIT_HALF else (2 * i, 2 * i + 1) for i in range(half)]
    result = x.astype(np.float64)
    for i, (a, b) in enumerate(pairs):
        turned = (x[..., a] + 1j * x[..., b]) * np.exp(1j * angles[:, i].astype(np.float64))
        result[..., a], result[..., b] = turned.real, turned.imag
    return result


@given(cases())
def test_rotation_is_multiplication_by_a_complex_number(case):
    config, x, positions = case
    angles = positions[:, None].astype(np.float32) * inverse_frequencies(config)
    actual = rope(CTX, tensor(x), config, tensor(positions)).numpy()
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, rotated_by_complex_numbers(x, angles, config.mode), atol=2e-6)


def test_numpy_arrays_are_welcome():
    x: Any = np.random.default_rng(4).standard_normal((3, 4), np.float32)
    config = RopeConfig(rotated=4)
    np.testing.assert_array_equal(rope(CTX, x, config).numpy(), rope(CTX, tensor(x), config).numpy())


@given(cases())
def test_views_and_ops_give_the_same_bits(case):
    config, x, positions = case
    cos, sin = rope_tables(CTX, config, tensor(positions))
    by_views = apply_rope(CTX, tensor(x), cos, sin, config.mode).numpy()
    by_ops = apply_rope(RecordingLookalike(), tensor(x), cos, sin, config.mode).numpy()
    assert by_views.tobytes() == by_ops.tobytes()


@given(cases(), st.sampled_from(["bfloat16", "float16"]))
def test_views_and_ops_give_the_same_bits_in_short_dtypes(case, dtype):
    config, x, positions = case
    short = CTX.ops.cast(x, {"bfloat16": "bf16", "float16": "f16"}[dtype])
    cos, sin = rope_tables(CTX, config, tensor(positions))
    by_views = apply_rope(CTX, short, cos, sin, config.mode)
    by_ops = apply_rope(RecordingLookalike(), short, cos, sin, config.mode)
    assert by_views.spec == by_ops.spec == short.spec
    assert by_views.numpy().tobytes() == by_ops.numpy().tobytes()


@given(cases())
def test_lengths_are_kept_and_position_zero_changes_nothing(case):
    config, x, positions = case
    actual = rope(CTX, tensor(x), config, tensor(positions)).numpy()
    np.testing.assert_allclose(np.linalg.norm(actual, axis=-1), np.linalg.norm(x, axis=-1), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(rope(CTX, tensor(x), config, tensor(np.zeros_like(positions))).numpy(), x)
    np.testing.assert_array_equal(actual[..., config.rotated :], x[..., config.rotated :])


@given(MODES, st.integers(0, 300), st.integers(0, 300), st.integers(0, 300))
def test_scores_depend_on_the_distance_alone(mode, m, n, shift):
    config = RopeConfig(rotated=6, base=500.0, mode=mode)
    q, k = np.random.default_rng(0).standard_normal((2, 1, 8), np.float32)

    def score(a: int, b: int) -> float:
        at = [rope(CTX, tensor(x), config, tensor([p])).numpy() for x, p in ((q, a), (k, b))]
        return float((at[0] * at[1]).sum())

    assert score(m, n) == pytest.approx(score(m + shift, n + shift), abs=5e-4)


@given(cases())
def test_the_layouts_differ_by_a_permutation_of_dims(case):
    """GGUF's reordered rows rotated INTERLEAVED are Hugging Face's rows rotated SPLIT_HALF."""
    config, x, positions = case
    half = config.rotated // 2
    order = np.concatenate(
        [np.arange(config.rotated).reshape(2, half).T.reshape(-1), np.arange(config.rotated, x.shape[-1])]
    )
    split = rope(CTX, tensor(x), dataclasses.replace(config, mode=RopeMode.SPLIT_HALF), tensor(positions)).numpy()
    interleaved = rope(
        CTX, tensor(x[..., order]), dataclasses.replace(config, mode=RopeMode.INTERLEAVED), tensor(positions)
    ).numpy()
    np.testing.assert_array_equal(interleaved, split[..., order])


def test_positions_are_implied_from_zero():
    config, x = RopeConfig(rotated=4), np.random.default_rng(1).standard_normal((2, 3, 5, 6), np.float32)
    given_positions = rope(CTX, tensor(x), config, tensor(range(5))).numpy()
    np.testing.assert_array_equal(rope(CTX, tensor(x), config).numpy(), given_positions)


def test_positions_may_differ_per_row_of_the_batch():
    config, x = RopeConfig(rotated=4), np.random.default_rng(2).standard_normal((2, 3, 2, 4), np.float32)
    positions = np.array([[3, 4], [7, 8]], np.int32)
    actual = rope(CTX, tensor(x), config, tensor(positions[:, None])).numpy()  # [B, 1, T] beside [B, N, T]
    for row in range(2):
        np.testing.assert_array_equal(actual[row], rope(CTX, tensor(x[row]), config, tensor(positions[row])).numpy())


def test_tables_of_another_config_do_not_leak():
    positions = np.arange(4, dtype=np.int32)
    for base in (100.0, 10000.0, 100.0):
        for mode in RopeMode:
            config = RopeConfig(rotated=4, base=base, mode=mode)
            cos = rope_tables(CTX, config, tensor(positions))[0].numpy()
            both = np.concatenate([positions[:, None].astype(np.float32) * inverse_frequencies(config)] * 2, -1)
            expected = np.cos(
                both if mode is RopeMode.SPLIT_HALF else both.reshape(4, 2, 2).swapaxes(1, 2).reshape(4, 4)
            )
            np.testing.assert_array_equal(cos, expected)


@pytest.mark.parametrize("mode", RopeMode)
@given(length=st.integers(1, 5000))
def test_a_length_known_at_run_time_gives_the_tables_of_a_known_one(mode, length):
    positions = np.arange(3, dtype=np.int32)
    for scaling in (DynamicScaling(4.0, 512), LongropeScaling((1.0, 1.5, 2.0), (3.0, 5.0, 9.0), 600, 1.2)):
        config = RopeConfig(rotated=6, trained_length=512, scaling=scaling, mode=mode)
        known = rope_tables(CTX, config, tensor(positions), length)
        actual = rope_tables(CTX, config, tensor(positions), CTX.ops.constant(length))
        for a, b in zip(known, actual, strict=True):
            np.testing.assert_allclose(b.numpy(), a.numpy(), atol=5e-7)


def test_the_attention_factor_scales_both_tables():
    plain = RopeConfig(rotated=4, scaling=YarnScaling(2.0, 64, 32.0, 1.0, 1.0, True))
    scaled = RopeConfig(rotated=4, scaling=YarnScaling(2.0, 64, 32.0, 1.0, 1.5, True))
    positions = np.arange(5, dtype=np.int32)
    for a, b in zip(
        rope_tables(CTX, plain, tensor(positions)), rope_tables(CTX, scaled, tensor(positions)), strict=True
    ):
        np.testing.assert_allclose(b.numpy(), a.numpy() * 1.5, rtol=1e-6)


def test_linear_scaling_divides_positions():
    x = np.random.default_rng(3).standard_normal((4, 6), np.float32)
    config = RopeConfig(rotated=6, scaling=LinearScaling(2.0))
    actual = rope(CTX, tensor(x), config, tensor(range(0, 8, 2))).numpy()
    np.testing.assert_allclose(actual, rope(CTX, tensor(x), RopeConfig(rotated=6)).numpy(), atol=1e-6)


@pytest.mark.parametrize("scaling", [DynamicScaling(2.0, 8), LongropeScaling((1.0,), (2.0,), 8, 1.0)])
def test_a_needed_length_is_asked_for(scaling):
    config = RopeConfig(rotated=2, scaling=scaling)
    with pytest.raises(OpError, match="Scaling depends on the sequence's length: pass length="):
        rope_tables(CTX, config, tensor(range(3)))


def test_sections_need_three_axes_of_positions():
    config = RopeConfig(rotated=6, sections=(1, 1, 1))
    with pytest.raises(OpError, match=r"sections need positions \[3, ..\]; found \[4\]"):
        rope_tables(CTX, config, tensor(range(4)))


@pytest.mark.parametrize(
    ("x", "cos", "sin"),
    [
        ((4,), (4,), (4,)),
        ((3, 4), (3, 6), (3, 6)),
        ((3, 4), (3, 3), (3, 3)),
        ((3, 4), (3, 4), (3, 2)),
        ((3, 4), (2, 4), (2, 4)),
        ((3, 4), (5, 3, 4), (5, 3, 4)),
    ],
)
@pytest.mark.parametrize("ctx", [CTX, RecordingLookalike()])
def test_tables_that_do_not_fit_are_refused(ctx, x, cos, sin):
    tensors = [CTX.ops.zeros(shape, "f32") for shape in (x, cos, sin)]
    with pytest.raises(OpError, match=r"apply_rope: expected x \[.., H\] of rank 2 or more"):
        apply_rope(ctx, tensors[0], tensors[1], tensors[2], RopeMode.SPLIT_HALF)


def test_a_mode_given_by_name_computes_that_mode():
    x: Any = np.random.default_rng(0).standard_normal((3, 8), np.float32)
    positions: Any = np.arange(3, dtype=np.int32)
    ctx, results = EagerExecutionContext(), {}
    for mode in RopeMode:
        config = RopeConfig(rotated=8, trained_length=16, mode=mode)
        results[mode] = rope(ctx, x, config).numpy()
        name: Any = mode.value
        named = RopeConfig(rotated=8, trained_length=16, mode=name)
        np.testing.assert_array_equal(rope(ctx, x, named).numpy(), results[mode])
        by_name = apply_rope(ctx, x, *rope_tables(ctx, config, positions), name)
        np.testing.assert_array_equal(by_name.numpy(), results[mode])
    assert not np.array_equal(results[RopeMode.SPLIT_HALF], results[RopeMode.INTERLEAVED])
