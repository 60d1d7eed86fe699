"""Requests reuse what requests with the same salt left, and nothing else: counted, not timed."""

import os
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from generation.engine import Drafting, PromptPicture
from generation.engine._guard import GuardedModel
from generation.engine._hash_slots_testing import HashSlots
from generation.engine._paged_slots_testing import PagedHashSlots
from generation.engine._pictures import PictureEncoder, check_pictures
from generation.engine._reference_testing import Received
from generation.engine._scheduler_testing import Bench
from lang_core import InputError

_LONG = os.environ.get("TAPELINE_LONG") == "1"
_PROMPT = list(range(1, 41))
_SALTS = ("a", "b", None)
# Few tokens, so that many prompts begin alike.
_REQUESTS = st.lists(
    st.tuples(st.sampled_from(_SALTS), st.lists(st.integers(1, 2), min_size=1, max_size=40), st.integers(1, 6)),
    min_size=2,
    max_size=14,
)
_KINDS: dict[str, dict[str, Any]] = {
    "any": {"invariant": True, "recurrent": False},
    "states": {"invariant": True, "recurrent": True},
    "pieces": {"invariant": False, "recurrent": False},
    "pieces with states": {"invariant": False, "recurrent": True},
    "pages": {"invariant": True, "verify_tokens": 4},
}


def _model(kind: str) -> HashSlots:
    return PagedHashSlots(60, **_KINDS[kind]) if kind == "pages" else HashSlots(3, **_KINDS[kind])


def _text(prompt: list[int], received: Received) -> list[int]:
    return [*prompt, *(token_id for token_id, *_ in received.tokens)]


def _common(first: list[int], second: list[int]) -> int:
    return next(
        (at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("store_bytes", [0, 1 << 20])
def test_only_tokens_of_the_same_salt_are_reused(kind: str, store_bytes: int) -> None:
    reuses = Counter[str | None]()

    @settings(max_examples=1000 if _LONG else 40, deadline=None)
    @given(_REQUESTS, st.integers(1, 3))
    @example([("a", _PROMPT, 1)] * 3, 1)
    def run(requests: list[tuple[str | None, list[int], int]], at_once: int) -> None:
        bench = Bench(_model(kind), store_bytes=store_bytes, block_tokens=4)
        seen: dict[str | None, list[list[int]]] = {salt: [] for salt in _SALTS}
        while requests:
            batch, requests = requests[:at_once], requests[at_once:]
            made = [(salt, prompt, bench.put(prompt, count, cache_salt=salt)) for salt, prompt, count in batch]
            bench.run()
            for salt, prompt, (_, received) in made:
                seen[salt].append(_text(prompt, received))
            for place, (salt, prompt, (_, received)) in enumerate(made):
                before = seen[salt][: len(seen[salt]) - sum(one[0] == salt for one in made)]
                beside = [_text(one[1], one[2][1]) for at, one in enumerate(made) if at != place and one[0] == salt]
                longest = max((_common(prompt, text) for text in before + beside), default=0)
                assert received.end.reused_tokens <= (longest if salt is not None else 0)
                reuses[salt] += received.end.reused_tokens
        run_tokens = sum(len(answer.prompt) - answer.reused for answer, _ in bench.answers)
        assert bench.scheduler.figures().prompt_tokens == run_tokens

    run()
    assert reuses[None] == 0
    assert reuses["a"] > 0 or (kind not in ("any", "pages") and not store_bytes)


@pytest.mark.parametrize("kind", _KINDS)
def test_another_salt_computes_the_whole_prompt_and_the_same_one_does_not(kind: str) -> None:
    bench = Bench(_model(kind), block_tokens=4)

    def computed(salt: str | None) -> int:
        before = bench.scheduler.figures().prompt_tokens
        bench.put(_PROMPT, 1, cache_salt=salt)
        bench.run()
        return bench.scheduler.figures().prompt_tokens - before

    assert computed("a") == len(_PROMPT)
    assert computed("b") == len(_PROMPT)
    assert computed("a") < len(_PROMPT)
    assert [computed(None), computed(None)] == [len(_PROMPT)] * 2
    assert computed("b") < len(_PROMPT)


def test_embeddings_of_pictures_are_kept_by_salt() -> None:
    model = HashSlots()
    bench = Bench(model)
    pixels = np.ones((3, 4, 4), np.float32)

    def encoded(salt: str | None, first: int) -> int:
        del model.calls[:]
        picture = PromptPicture(pixels=pixels, start=1, stop=4)
        bench.put([first, 7, 7, 7, 2], 1, pictures=[picture], cache_salt=salt)
        bench.run()
        return model.calls.count("encode_image")

    assert [encoded(salt, first) for first, salt in enumerate(("a", "a", "b", "b", None, None), 1)] == [
        1,
        0,
        1,
        0,
        1,
        1,
    ]


def test_a_drafter_begins_anew_where_another_salt_had_the_row() -> None:
    begun: list[bool] = []

    class _Silent:
        def propose(self, history: list[int], count: int) -> list[int]:
            del history, count
            return []

    def begin(row: int, fresh: bool) -> Any:
        del row
        begun.append(fresh)
        return _Silent()

    bench = Bench(HashSlots(1, verify_tokens=4), Drafting(begin=begin))
    for salt in ("a", "a", "b", "a", None, None):
        bench.put(_PROMPT[:5], 4, cache_salt=salt)
        bench.run()
    assert begun == [True, False, True, True, True, True]


def test_pictures_of_the_same_pixels_in_another_shape_or_order_are_others() -> None:
    pixels, order = np.zeros((2, 3, 4, 6), np.float32), np.array([1, -1, 0, 4], np.int32)

    def digest(pixels: np.ndarray, order: np.ndarray | None) -> bytes:
        return PromptPicture(pixels=pixels, start=0, stop=4, order=order).digest

    turned = pixels.reshape(2, 3, 6, 4)
    assert len({digest(pixels, order), digest(turned, order), digest(pixels, order[::-1]), digest(pixels, None)}) == 4
    assert digest(pixels, order) == digest(pixels.copy(), order.copy())


def test_rows_of_several_tiles_are_taken_in_the_order_of_the_tokens() -> None:
    model = HashSlots()
    bench = Bench(model)
    tiles = np.stack([np.full((3, 4, 4), value, np.float32) for value in (1, 2)])
    order = np.array([3, -1, 0], np.int32)
    picture = PromptPicture(pixels=tiles, start=1, stop=4, order=order)
    bench.put([5, 7, 6, 7, 2], 1, pictures=[picture])
    bench.run()
    assert model.calls.count("encode_image") == 2
    rows = np.concatenate([model.encode_image(tile) for tile in tiles])
    encoded = PictureEncoder(GuardedModel(model), 0).encode(picture, None)
    np.testing.assert_array_equal(encoded[[0, 2]], rows[[3, 0]])
    with pytest.raises(InputError, match="token 7 at position 2 is outside of a picture"):
        check_pictures([picture], [5, 7, 7, 7, 2], 7)


def test_rows_with_weights_are_summed_and_other_weights_are_another_picture() -> None:
    model = HashSlots()
    tiles = np.stack([np.full((3, 4, 4), value, np.float32) for value in (1, 2)])
    order, weights = np.array([[0, 3], [2, 1]], np.int32), np.array([[0.25, 0.75], [1, 0]], np.float32)
    picture = PromptPicture(pixels=tiles, start=1, stop=3, order=order, weights=weights)
    rows = np.concatenate([model.encode_image(tile) for tile in tiles])
    encoded = PictureEncoder(GuardedModel(model), 0).encode(picture, None)
    np.testing.assert_allclose(encoded, np.stack([0.25 * rows[0] + 0.75 * rows[3], rows[2]]), rtol=1e-6)
    check_pictures([picture], [5, 7, 7, 6], 7)
    other = PromptPicture(pixels=tiles, start=1, stop=3, order=order, weights=weights[::-1].copy())
    assert picture.digest != other.digest
