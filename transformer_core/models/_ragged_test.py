"""Sequences of different lengths in one batch, against whole sequences at once."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lang_core import ConfigError, EagerExecutionContext, TensorSpec
from transformer_core.layers._attention_config import Alibi
from transformer_core.layers._rope_config import RopeConfig, RopeKind
from transformer_core.layers._rope_scaling import DynamicScaling, LongropeScaling
from transformer_core.layers._weights_testing import context_of
from transformer_core.models import DecoderLM, entry_points
from transformer_core.models._tiny_testing import HYBRID, VARIANTS, changed

_ROPES = {
    "dynamic": RopeConfig(rotated=6, trained_length=5, scaling=DynamicScaling(4.0, 5)),
    "longrope": RopeConfig(
        rotated=6, trained_length=24, scaling=LongropeScaling((1.0, 1.5, 2.0), (2.0, 3.0, 5.0), 9, 1.1)
    ),
}
CONFIGS = {name: changed(**changes) for name, changes in VARIANTS.items()}
CONFIGS |= {name: changed(rope=rope) for name, rope in _ROPES.items()}
CONFIGS["learned"] = changed(rope_kinds=(RopeKind.NONE,) * 2, learned_positions=24)
CONFIGS["sinusoids"] = changed(rope_kinds=(RopeKind.NONE,) * 2, first_sinusoid=2, embedding_norm=True)
CONFIGS["alibi"] = changed(rope_kinds=(RopeKind.NONE,) * 2, alibi=Alibi((0.5, 0.25, 0.125, 0.0625)))
CONFIGS["rounded"] = changed(rope_kinds=(RopeKind.NONE,) * 2, alibi=Alibi((0.7, 0.3, 0.1, 0.05), rounded=True))
CONFIGS["hybrid"] = HYBRID
MODELS = {name: DecoderLM(config) for name, config in CONFIGS.items()}
IDS = np.random.default_rng(6).integers(0, 31, (3, 18)).astype(np.int32)
DRAWN = settings(deadline=None, derandomize=True, max_examples=8, database=None)


class Batch:
    """Runs entry points with a position per row, and carries the caches along."""

    def __init__(self, model: DecoderLM, ctx: EagerExecutionContext, fill: float = 0.0, **sizes: Any) -> None:
        self.ctx = ctx
        self.entries = {
            point.name: point
            for point in entry_points(
                model, names=("prefill", "decode", "verify"), batch=len(IDS), positions="per_row", **sizes
            )
        }
        caches = [a for a in self.entries["decode"].arguments if a.alias_result]
        self.names = [a.name for a in caches]
        self.caches = [np.full(a.spec.shape, fill, a.spec.dtype.numpy) for a in caches]

    def run(self, name: str, tokens: np.ndarray, *places: Any, length: int = 0) -> np.ndarray:
        if any(argument.name == "length" for argument in self.entries[name].arguments):
            places = *places, [length] * len(IDS)
        arrays: Any = (tokens.astype(np.int32), *[np.asarray(place, np.int32) for place in places], *self.caches)
        logits, *caches, _ = self.entries[name](self.ctx, *[self.ctx.constant(array) for array in arrays]).values()
        self.caches = [cache.numpy() for cache in caches]
        return logits.numpy()


def expected_of(model: DecoderLM, ctx: EagerExecutionContext, length: int = 18) -> np.ndarray:
    """Logits [B, T, V] of the whole sequences; of a RoPE that depends on the length, every row at its own length."""
    if not model.config.rope.scaling.depends_on_length:
        return model(ctx, IDS[:, :length]).numpy()
    rows = [model(ctx, IDS[:, : end + 1]).numpy()[:, end] for end in range(length)]
    return np.stack(rows, 1)


def close(name: str, actual: np.ndarray, expected: np.ndarray) -> None:
    """Compares logits of up to 6. A unit in the last place of the hybrid's weights moves its logits by 3e-4."""
    tolerance = 1e-3 if name == "hybrid" else 1e-4
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", list(CONFIGS))
@given(data=st.data())
@DRAWN
def test_any_pieces_of_any_rows_give_what_the_whole_sequences_give(name: str, data: st.DataObject) -> None:
    """Every call takes 0 to T tokens of every row, and RoPE the whole length; caches hold any numbers at first."""
    model = MODELS[name]
    ctx = context_of(model)
    expected = model(ctx, IDS[:, :18]).numpy()
    batch = Batch(model, ctx, fill=0.0 if name == "hybrid" else 1e3, sequence=5, max_sequence=18)
    done = np.zeros(3, np.int32)
    while (done < 18).any():
        left = 18 - done
        if data.draw(st.booleans()) and (left > 0).all():
            tokens = IDS[range(3), done][:, None]
            close(name, batch.run("decode", tokens, done, length=18), expected[range(3), done])
            done = done + 1
            continue
        counts = np.array([data.draw(st.integers(0, min(5, int(n)))) for n in left], np.int32)
        counts[int(left.argmax())] = max(counts[int(left.argmax())], 1)  # some row goes on
        padded = np.full((3, 5), 30, np.int32)
        for row, count in enumerate(counts):
            padded[row, :count] = IDS[row, done[row] : done[row] + count]
        positions = np.where(left > 0, done, data.draw(st.integers(0, 17)))
        actual = batch.run("prefill", padded, positions, counts - 1, length=18)
        done = done + counts
        for row in np.flatnonzero(counts):
            close(name, actual[row], expected[row, done[row] - 1])


@pytest.mark.parametrize("name", list(_ROPES))
def test_a_rope_that_depends_on_the_length_goes_by_each_rows_own(name: str) -> None:
    """Prefilled at once, for keys in the cache keep the RoPE that they were written with."""
    model = MODELS[name]
    ctx = context_of(model)
    ends = np.array([3, 12, 7])
    actual = Batch(model, ctx, sequence=14, max_sequence=18).run("prefill", IDS[:, :14], [0, 0, 0], ends)
    close(name, actual, expected_of(model, ctx, 14)[range(3), ends])


@pytest.mark.parametrize("name", ["llama", "mixed", "latent", "hybrid", "learned"])
def test_rows_at_equal_positions_give_what_a_shared_position_gives(name: str) -> None:
    model = MODELS[name]
    ctx = context_of(model)
    sizes: Any = {"batch": 3, "sequence": 5, "max_sequence": 18}
    shared = entry_points(model, names=("prefill",), **sizes)[0]
    rows = Batch(model, ctx, sequence=5, max_sequence=18)
    given = [np.zeros(a.spec.shape, a.spec.dtype.numpy) for a in shared.arguments if a.alias_result]
    arrays: Any = (IDS[:, :5], np.int32(0), np.int32(4), *given)
    logits, *caches, _ = shared(ctx, *[ctx.constant(array) for array in arrays]).values()
    close(name, rows.run("prefill", IDS[:, :5], [0] * 3, [4] * 3), logits.numpy())
    for mine, theirs in zip(rows.caches, caches, strict=True):
        close(name, mine, theirs.numpy())


@pytest.mark.parametrize("name", ["llama", "mixed", "latent", "hybrid"])
def test_padding_and_rows_at_rest_leave_no_trace(name: str) -> None:
    model = MODELS[name]
    batch = Batch(model, context_of(model), sequence=5, max_sequence=18)
    batch.run("prefill", IDS[:, :5], [0] * 3, [4] * 3)
    before = [cache.copy() for cache in batch.caches]
    batch.run("prefill", IDS[:, 5:10], [16, 5, 0], [0, -1, -1])
    for cache, mine, was in zip(batch.names, batch.caches, before, strict=True):
        np.testing.assert_array_equal(mine[1:], was[1:], err_msg=cache)
        if cache.endswith("_cache"):
            changed_at = np.flatnonzero((mine[0] != was[0]).any((0, 2)))
            assert changed_at.tolist() == [16]
        else:
            assert (mine[0] != was[0]).any()


@pytest.mark.parametrize("name", ["llama", "mixed", "latent", "hybrid"])
def test_score_gives_in_every_row_what_prefill_gives_of_it(name: str) -> None:
    model = MODELS[name]
    ctx = context_of(model)
    starts, counts = np.array([5, 0, 3]), np.array([4, 2, 0])
    scored = Batch(model, ctx, sequence=5, verify_tokens=4, max_sequence=18)
    scored.run("prefill", IDS[:, :5], [0, 0, 0], starts - 1)
    tokens = np.stack([IDS[row, start : start + 4] for row, start in enumerate(starts)])
    actual = scored.run("verify", tokens, starts, counts - 1)
    for row, (start, count) in enumerate(zip(starts, counts, strict=True)):
        for last in range(count):
            alone = Batch(model, ctx, sequence=12, max_sequence=18)
            whole = np.zeros((3, 12), np.int32)
            whole[row, : start + last + 1] = IDS[row, : start + last + 1]
            lasts = np.where(np.arange(3) == row, start + last, -1)
            close(name, actual[row, last], alone.run("prefill", whole, [0, 0, 0], lasts)[row])


def test_signatures() -> None:
    sizes: Any = {"batch": 3, "sequence": 5, "max_sequence": 9, "verify_tokens": 4}
    prefill, decode, score = entry_points(
        DecoderLM(changed()), names=("prefill", "decode", "verify"), positions="per_row", **sizes
    )
    for entry in (prefill, score):
        assert [a.name for a in entry.arguments[:3]] == ["token_ids", "position", "last"]
        assert [a.kind for a in entry.arguments[:3]] == ["tensor"] * 3
        assert {a.spec for a in entry.arguments[1:3]} == {TensorSpec((3,), "i32")}
    assert score.arguments[0].spec.shape == (3, 4)
    bounds = [[a.bounds for a in entry.arguments[1:3]] for entry in (prefill, score, decode)]
    assert bounds == [[(0, 8), (-1, 4)], [(0, 8), (-1, 3)], [(0, 8), None]]
    shared = entry_points(DecoderLM(changed()), names=("prefill", "decode", "verify"), **sizes)
    bounds = [[a.bounds for a in entry.arguments[1:3]] for entry in shared]
    assert bounds == [[(0, 4), (0, 4)], [(0, 8), None], [(0, 5), (0, 3)]]
    assert [a.name for a in decode.arguments[:3]] == ["token_ids", "position", "layers.0.key_cache"]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"positions": "per_rows"},
            r"positions: expected shared or per_row; found 'per_rows'; did you mean 'per_row'\?",
        ),
        ({"window_caches": "rings"}, r"window_caches: expected whole or ring; found 'rings'; did you mean 'ring'\?"),
        ({"verify_tokens": 0}, "verify_tokens: expected 1 or more; found 0"),
        ({"verify_tokens": 9}, r"verify_tokens: expected at most 8, the positions that caches hold; found 9"),
    ],
)
def test_what_is_asked_for_is_checked(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        entry_points(DecoderLM(changed()), sequence=4, max_sequence=8, **asked)
