from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from lang_core import (
    ENCODINGS,
    Argument,
    EntryPoint,
    ExecutionContext,
    MappingWeights,
    Tensor,
    TensorSpec,
    VerificationError,
)
from tapeline.cli import no_progress
from tapeline.exporting._compared import compared
from tapeline.exporting._verify import References, check_interpreter

_RNG = np.random.default_rng(4)
_TRUTH = _RNG.standard_normal((3, 40))


def _near(distance: float) -> np.ndarray:
    return _TRUTH + distance * _RNG.standard_normal(_TRUTH.shape)


def test_what_differs_as_rounding_does_is_as_near_to_f32_as_the_eager_context() -> None:
    """Two computations of 16 bits, each off by 3 %: they differ by more than is allowed."""
    asked: list[str] = []

    def exact(name: str) -> dict[str, np.ndarray]:
        asked.append(name)
        return {"a": _TRUTH, "b": _TRUTH}

    actual, expected = {"a": _near(0.03), "b": _near(0.03)}, {"a": _near(0.03), "b": _near(0.03)}
    rows = compared("vmvx", "decode", actual, expected, "bf16", exact)
    assert asked == ["decode"]
    for row in rows:
        assert row["max_rel"] > 0.03
        assert row["to_f32"]["nmse"] == pytest.approx(row["eager_to_f32"]["nmse"], rel=0.5)


def test_what_is_further_from_f32_disagrees() -> None:
    message = (
        r"result 'a' disagrees .*3e-02 is allowed for bf16\), cosine 0.99\d+, NMSE to f32 0.0\d+, where the eager "
    )
    with pytest.raises(VerificationError, match=message):
        compared("vmvx", "decode", {"a": _near(0.12)}, {"a": _near(0.03)}, "bf16", lambda _: {"a": _TRUTH})
    broken = _near(0.03)
    broken[1, 2] = np.nan
    with pytest.raises(VerificationError, match="result 'a' disagrees"):
        compared("vmvx", "decode", {"a": broken}, {"a": _near(0.03)}, "bf16", lambda _: {"a": _TRUTH})


def test_where_there_is_no_f32_the_tolerance_decides() -> None:
    with pytest.raises(VerificationError, match=r"cosine 0.99\d+: the bundle was not written"):
        compared("vmvx", "decode", {"a": _near(0.03)}, {"a": _near(0.03)}, "f32")
    (row,) = compared("vmvx", "decode", {"a": _TRUTH}, {"a": _TRUTH * (1 + 1e-5)}, "f32")
    assert "to_f32" not in row


def _outlier() -> EntryPoint:
    """Product of one block whose largest activation is 3e5 times the others, and meets weights of 0."""
    weight = _RNG.standard_normal((8, 32)).astype(np.float32)
    weight[:, 4] = 0
    packed, factors = ENCODINGS["q8_0"].pack(weight), np.where(np.arange(32) == 4, 3e5, 1).astype(np.float32)

    def fn(ctx: ExecutionContext, x: Tensor) -> Mapping[str, Tensor]:
        spread = ctx.ops.mul(x, ctx.constant(factors))
        return {"logits": ctx.ops.packed_linear(spread, ctx.constant(packed), ENCODINGS["q8_0"])}

    return EntryPoint("forward", fn, (Argument("pixel_values", TensorSpec((1, 32), "f32")),))


def test_a_block_with_one_large_activation_is_compared_in_the_same_blocks(tmp_path: Path) -> None:
    """SmolLM2-135M in Q4_1 with 8 slots: a right bundle was refused for one token of the example calls."""
    point, weights = _outlier(), MappingWeights({})
    rounds = References([point], weights, 7, rounds=True)
    (row,) = check_interpreter([point], rounds, weights, "packed", tmp_path, no_progress)
    assert row["max_rel"] > 1e-3
    assert row["to_rounded"]["max_rel"] < 1e-5
    with pytest.raises(VerificationError, match="'logits' disagrees"):
        check_interpreter([point], References([point], weights, 7), weights, "packed", tmp_path, no_progress)


def test_what_blocks_do_not_explain_disagrees() -> None:
    rounded = {"a": _near(0.01)}
    with pytest.raises(VerificationError, match=r"for packed\), cosine 0.99\d+, 0.0\d+ with activations in blocks"):
        compared("vmvx", "decode", {"a": _near(0.01)}, {"a": _TRUTH}, "packed", rounded=lambda _: rounded)
    (row,) = compared("vmvx", "decode", rounded, {"a": _TRUTH}, "packed", rounded=lambda _: rounded)
    assert row["to_rounded"]["max_abs"] == 0


_REFERENCE = {"logits": np.array([[1.0, 2.0, 2.001]], np.float32), "next_ids": np.array([2], np.int32)}


def _found(next_id: int) -> dict[str, np.ndarray]:
    """Another rounding: the second logit is the largest."""
    return {"logits": np.array([[1.0, 2.001, 2.0]], np.float32), "next_ids": np.array([next_id], np.int32)}


def test_the_choice_between_near_logits_is_the_devices() -> None:
    rows = compared("local-task", "decode", _found(1), _REFERENCE, "bf16")
    assert [(row["result"], row["max_abs"]) for row in rows[1:]] == [("next_ids", 0)]


@pytest.mark.parametrize("next_id", [0, 2, -1])
def test_an_id_that_the_devices_own_logits_do_not_say_is_refused(next_id: int) -> None:
    with pytest.raises(
        VerificationError, match=r"entry point 'decode', result 'next_ids' disagrees.*0e\+00 is allowed"
    ):
        compared("local-task", "decode", _found(next_id), _REFERENCE, "bf16")


@pytest.mark.parametrize("rows", [False, True])
def test_caches_of_many_rows_are_there_for_one_entry_point_at_a_time(rows: bool) -> None:
    ran: list[str] = []

    def point(name: str) -> EntryPoint:
        def fn(ctx: ExecutionContext, row: Tensor, cache: Tensor) -> Mapping[str, Tensor]:
            ran.append(name)
            return {"c_cache": ctx.ops.add(cache, ctx.ops.cast(row, "f32"))}

        place = Argument("row" if rows else "position", TensorSpec((), "i32"), kind="scalar")
        return EntryPoint(
            name, fn, (place, Argument("c_cache", TensorSpec((2, 1, 3, 1), "f32"), alias_result="c_cache"))
        )

    references = References([point("a"), point("b")], MappingWeights({}), 7)
    for _ in range(2):
        seen = []
        for name, inputs, _results in references.calls():
            seen.append(name)
            assert references.of(name)[0] is inputs
        assert seen == ["a", "b"]
    assert ran == (["a", "b", "a", "b"] if rows else ["a", "b"])
    if rows:
        with pytest.raises(KeyError):
            references.of("a")
    else:
        references.of("a")
