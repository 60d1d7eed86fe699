"""Ring caches of layers with windows, against whole caches and whole sequences."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lang_core import EagerExecutionContext, TensorSpec
from transformer_core.layers._kv_cache import KVCache, RingCache, kv_layout, ring_layout
from transformer_core.layers._rope_config import RopeConfig
from transformer_core.layers._weights_testing import context_of
from transformer_core.models import DecoderLM, entry_points
from transformer_core.models._tiny_testing import changed

LENGTH = 40
IDS = np.random.default_rng(7).integers(0, 31, (2, LENGTH)).astype(np.int32)
ROPE = RopeConfig(rotated=6, trained_length=64)
DRAWN = settings(deadline=None, derandomize=True, max_examples=20, database=None)


class Runner:
    """Runs entry points, and carries the caches along."""

    def __init__(self, model: DecoderLM, ctx: EagerExecutionContext, fill: float = 0.0, **asked: Any) -> None:
        self.ctx, self.per_row = ctx, asked.get("positions") == "per_row"
        names = ("prefill", "decode", "verify")
        self.entries = {e.name: e for e in entry_points(model, names=names, batch=2, max_sequence=LENGTH, **asked)}
        specs = [a.spec for a in self.entries["decode"].arguments if a.alias_result]
        self.caches = [np.full(spec.shape, fill, spec.dtype.numpy) for spec in specs]

    def run(self, name: str, tokens: np.ndarray, *places: Any) -> np.ndarray:
        at = [np.full(2, place, np.int32) if self.per_row else np.int32(place) for place in places]
        given: Any = (tokens, *at, *self.caches)
        logits, *caches, _ = self.entries[name](self.ctx, *[self.ctx.constant(array) for array in given]).values()
        self.caches = [cache.numpy() for cache in caches]
        return logits.numpy()


@given(
    window=st.integers(1, 9),
    tokens=st.integers(1, 12),
    other=st.sampled_from([None, 5, "same"]),
    positions=st.sampled_from(["shared", "per_row"]),
    seed=st.integers(0, 2**32),
)
@DRAWN
def test_any_pieces_give_what_whole_caches_give_past_every_wrap(
    window: int, tokens: int, other: Any, positions: str, seed: int
) -> None:
    """Chunks shorter and longer than the window, padded ones, single tokens, and going back over what is there."""
    windows, rng = (window, window if other == "same" else other), np.random.default_rng(seed)
    model = DecoderLM(changed(windows=windows, rope=ROPE))
    ctx = context_of(model)
    expected = model(ctx, IDS).numpy()
    ring, whole = (
        Runner(model, ctx, fill, sequence=tokens, positions=positions, window_caches=kind)
        for kind, fill in (("ring", 1e3), ("whole", 0.0))
    )
    assert ring.caches[0].shape[2] == min(window + tokens - 1, LENGTH)
    done = written = 0
    while done < LENGTH:
        start = rng.integers(max(0, written - tokens), done + 1) if rng.random() < 0.4 else done
        if rng.random() < 0.3:
            call, width, count = "decode", 1, 1
        else:
            start = min(start, LENGTH - tokens) if positions == "shared" else start
            call, width, count = "prefill", tokens, rng.integers(1, min(tokens, LENGTH - start) + 1)
        padded = np.full((2, width), 30, np.int32)
        padded[:, :count] = IDS[:, start : start + count]
        given_ = call, padded, start, *([count - 1] if call == "prefill" else [])
        done = start + count
        written = max(written, start + width if positions == "shared" else done)
        actual = ring.run(*given_)
        np.testing.assert_allclose(actual, whole.run(*given_), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(actual, expected[:, done - 1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("positions", ["shared", "per_row"])
def test_a_sequence_may_begin_anew_in_a_ring_that_is_full(positions: str) -> None:
    model = DecoderLM(changed(windows=(4, None), rope=ROPE))
    ctx = context_of(model)
    used, fresh = (Runner(model, ctx, sequence=6, positions=positions, window_caches="ring") for _ in range(2))
    for start in range(0, 30, 6):
        used.run("prefill", IDS[:, start : start + 6], start, 5)
    padded = np.pad(IDS[:, 9:12], ((0, 0), (0, 3)))
    np.testing.assert_array_equal(used.run("prefill", padded, 0, 2), fresh.run("prefill", padded, 0, 2))
    np.testing.assert_array_equal(used.run("decode", IDS[:, :1], 3), fresh.run("decode", IDS[:, :1], 3))


def test_tokens_that_are_turned_down_leave_no_trace_in_what_follows() -> None:
    """Score writes T' entries over the oldest ones; going on from the middle of them needs none of those."""
    model = DecoderLM(changed(windows=(5, 5), rope=ROPE))
    ctx = context_of(model)
    runner = Runner(model, ctx, sequence=2, verify_tokens=6, window_caches="ring")
    expected = model(ctx, IDS).numpy()
    for start in range(0, 24, 2):
        runner.run("prefill", IDS[:, start : start + 2], start, 1)
        draft = IDS[:, start + 2 : start + 8].copy()
        draft[:, 1:] = (draft[:, 1:] + 1) % 31  # the first one is right
        actual = runner.run("verify", draft, start + 2, 5)
        np.testing.assert_allclose(actual[:, 0], expected[:, start + 2], rtol=1e-4, atol=1e-4)


def test_a_ring_is_as_large_as_the_window_and_a_call_need_and_never_larger_than_the_cache() -> None:
    model = DecoderLM(changed(windows=(4, None), rope=ROPE))
    whole = [layer.cache_layout(2, 20) for layer in model.model.layers]
    rings = [ring_layout(layout, 3) for layout in whole]
    shapes = [[[spec.shape for spec in layout.specs.values()] for layout in layouts] for layouts in (rings, whole)]
    assert shapes[0] == [[(2, 2, 6, 6)] * 2, [(2, 2, 20, 6)] * 2]
    assert shapes[1] == [[(2, 2, 20, 6)] * 2] * 2
    assert [type(layout.make(*layout.specs.values())) for layout in rings] == [RingCache, KVCache]
    decode = entry_points(model, names=["decode"], batch=2, sequence=3, max_sequence=20, window_caches="ring")[0]
    kept = [argument.spec for argument in decode.arguments if argument.alias_result]
    assert kept == [spec for layout in rings for spec in layout.specs.values()]
    spec = TensorSpec((1, 2, 9, 4), "bf16")
    plain, wide, narrow = (kv_layout(spec, spec, window) for window in (None, 7, 6))
    assert ring_layout(plain, 3) is plain
    assert ring_layout(wide, 3) is wide
    assert set(ring_layout(narrow, 3).specs.values()) == {TensorSpec((1, 2, 8, 4), "bf16")}


def test_a_ring_holds_the_last_entries_by_their_position() -> None:
    model = DecoderLM(changed(windows=(3, None), rope=ROPE))
    ctx = context_of(model)
    ring, whole = (Runner(model, ctx, sequence=4, window_caches=kind) for kind in ("ring", "whole"))
    for start in (0, 4, 8):
        for runner in (ring, whole):
            runner.run("prefill", IDS[:, start : start + 4], start, 3)
    for position in range(6, 12):
        np.testing.assert_array_equal(ring.caches[0][:, :, position % 6], whole.caches[0][:, :, position])
