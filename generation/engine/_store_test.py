"""The prefix store: what it finds, what it costs, and how much of what could be reused is."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generation import SamplingConfig
from generation.engine import EngineSettings, TokenRequest
from generation.engine._answer import Answer
from generation.engine._hash_slots_testing import HashSlots
from generation.engine._queue import WaitingQueue
from generation.engine._reference_testing import Received
from generation.engine._scheduler import Scheduler
from generation.engine._store import Block, BlockStore, common

_SALT = "a"


def _ids(token_ids: list[int]) -> np.ndarray:
    return np.array(token_ids, np.int64)


def _fill(store: BlockStore, token_ids: list[int], size: int) -> None:
    """Adds a sequence in blocks, whose arrays are their tokens."""
    block: Block | None = store.root(_SALT)
    tokens = _ids(token_ids)
    for stop in range(size, len(tokens) + 1, size):
        if block is None:
            return
        known = store.children(block, tokens, [stop])
        block = known[0] if known else _add(store, block, tokens, stop)


def _add(store: BlockStore, block: Block, tokens: np.ndarray, stop: int) -> Block | None:
    return store.add(block, tokens[block.stop : stop], lambda: [tokens[block.stop : stop]])


@settings(deadline=None)
@given(
    sequences=st.lists(st.lists(st.integers(0, 2), max_size=24), max_size=14),
    budget=st.integers(0, 16),
)
def test_paths_hold_their_own_tokens_and_the_budget_is_kept(sequences: list[list[int]], budget: int) -> None:
    store = BlockStore(budget * 1100)
    for sequence in sequences:
        _fill(store, sequence, 4)
        assert store.nbytes <= store.budget
        path = store.deepest(_SALT, _ids(sequence)).path()
        reread = [token for block in path for token in block.arrays[0].tolist()]
        assert reread == sequence[: len(reread)]
        if budget == 16 and len(sequences) < 3:
            assert len(reread) == len(sequence) // 4 * 4


def test_what_was_asked_for_last_stays_and_leaves_go_before_their_parents() -> None:
    store = BlockStore(4 * 1104 + 100)
    _fill(store, [1, 1, 1, 1, 2, 2, 2, 2], 4)
    _fill(store, [1, 1, 1, 1, 3, 3, 3, 3], 4)
    _fill(store, [4, 4, 4, 4], 4)
    store.use(store.deepest(_SALT, _ids([1, 1, 1, 1, 2, 2, 2, 2])))
    _fill(store, [5, 5, 5, 5], 4)
    assert store.deepest(_SALT, _ids([1, 1, 1, 1, 2, 2, 2, 2])).stop == 8
    assert store.deepest(_SALT, _ids([1, 1, 1, 1, 3, 3, 3, 3])).stop == 4
    _fill(store, [6, 6, 6, 6], 4)
    assert store.deepest(_SALT, _ids([4, 4, 4, 4])).stop == 0
    assert store.deepest(_SALT, _ids([1, 1, 1, 1])).stop == 4


def test_a_block_that_does_not_fit_beside_its_ancestors_is_not_taken() -> None:
    store = BlockStore(2 * 1104)
    _fill(store, [1] * 12, 4)
    assert store.deepest(_SALT, _ids([1] * 12)).stop == 8
    assert len(store) == 2


def test_arrays_do_not_keep_more_than_their_own_memory() -> None:
    store, whole = BlockStore(1 << 20), np.zeros((9, 1000))
    block = store.add(store.root(_SALT), _ids([1, 2]), lambda: [whole[1, :2]])
    assert block
    assert block.arrays[0].base is None


def test_common_length_of_tokens() -> None:
    assert common(_ids([1, 2, 3]), _ids([1, 2, 4, 5])) == 2
    assert common(_ids([1, 2]), _ids([1, 2, 4])) == 2
    assert common(_ids([]), _ids([1])) == 0


def _reuse(model: HashSlots, prompts: list[list[int]], **given_: Any) -> tuple[Any, int]:
    """Returns the figures after prompts that ran one after the other, and how many of their tokens came before."""
    queue = WaitingQueue(1)
    scheduler = Scheduler(model, queue, EngineSettings(**given_))
    known: list[list[int]] = []
    reusable = 0
    for prompt in prompts:
        received = Received()
        request = TokenRequest(prompt=prompt, sampling=SamplingConfig(), max_new_tokens=1)
        queue.put(Answer(request, received, model.vocabulary, None))
        while not received.ended:
            scheduler.tick()
            assert scheduler.figures().store_bytes <= scheduler.figures().store_budget
        reusable += max((min(common(_ids(old), _ids(prompt)), len(prompt) - 1) for old in known), default=0)
        known.append(prompt)
    return scheduler.figures(), reusable


def _shared_prompts(count: int) -> list[list[int]]:
    random = np.random.default_rng(3)
    stems = [random.integers(0, 500, length).tolist() for length in (400, 640, 297)]
    return [
        [*stems[random.integers(0, 3)], *random.integers(0, 500, random.integers(8, 90)).tolist()] for _ in range(count)
    ]


@pytest.mark.parametrize(
    ("kind", "least"),
    [
        ({}, 0.99),
        ({"recurrent": True}, 0.95),
        # Reuse ends where both prompts are cut alike: at multiples of the largest chunk, mostly.
        ({"invariant": False}, 0.85),
    ],
)
def test_most_of_what_can_be_reused_is(kind: dict[str, bool], least: float) -> None:
    model = HashSlots(2, 800, 500, (8, 32, 128), **kind)
    figures, reusable = _reuse(model, _shared_prompts(40))
    assert least * reusable <= figures.prefix_hits <= reusable
    assert figures.prefix_queries == figures.prefix_hits + figures.prompt_tokens


def test_rows_alone_are_reused_without_a_store() -> None:
    prompts = _shared_prompts(40)
    figures, reusable = _reuse(HashSlots(8, 800, 500, (8, 32, 128)), prompts, store_bytes=0)
    assert figures.prefix_hits >= 0.95 * reusable
    assert figures.store_bytes == 0


def test_a_conversation_goes_on_where_it_ended() -> None:
    turns = [list(range(length)) for length in (50, 91, 140, 260)]
    for recurrent in (False, True):
        model = HashSlots(1, 300, 500, (8, 32, 128), recurrent=recurrent)
        figures, reusable = _reuse(model, [prompt for turn in turns for prompt in (turn, [499 - len(turn)] * 40)])
        assert figures.prefix_hits >= 0.95 * reusable
