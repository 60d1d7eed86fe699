"""Calls of the model that it takes to store a row and to fill one from the store."""

from typing import Any

import numpy as np
import pytest

from generation.engine._guard import GuardedModel
from generation.engine._hash_slots_testing import HashSlots
from generation.engine._prefixes import Prefixes
from generation.engine._slot import Slot
from generation.engine._store import Block

_SALT = "a"
_PROMPT = np.arange(1, 31, dtype=np.int64)
_OTHER = np.concatenate([_PROMPT[:12], np.arange(40, 20, -1, dtype=np.int64)])


class _WideSlots(HashSlots):
    """The same with positions on the second axis, and a second cache."""

    position_axes = (1, None, 0)
    position_bytes = 3 * 8

    def read_row(self, row: int, start: int, stop: int) -> list[np.ndarray]:
        entries, state = super().read_row(row, start, stop)
        return [np.stack([entries, entries + np.uint64(1)]), state, entries]

    def write_row(self, row: int, start: int, arrays: Any) -> None:
        wide, state, entries = arrays
        assert np.array_equal(wide, np.stack([entries, entries + np.uint64(1)]))
        super().write_row(row, start, [entries, state])


def _filled(model: HashSlots, tokens: np.ndarray, row: int = 0, cut: list[int] | None = None) -> Slot:
    slot = Slot(row, model.capacity)
    model.prefill_row(tokens[:16].tolist(), row, 0)
    model.prefill_row(tokens[16:].tolist(), row, 16)
    slot.hold(tokens, cut or [], _SALT)
    return slot


def _blocks(prefixes: Prefixes, tokens: np.ndarray, stops: list[int] | None = None) -> list[Block]:
    return prefixes.store.deepest(_SALT, tokens, stops).path()


@pytest.mark.parametrize("kind", [HashSlots, _WideSlots])
def test_a_row_is_stored_by_one_call_and_filled_by_one(kind: type[HashSlots]) -> None:
    model = kind()
    prefixes = Prefixes(GuardedModel(model), 1 << 20, 4)
    slot = _filled(model, _PROMPT)
    entries = model.read_row(0, 0, 30)
    del model.calls[:]
    prefixes.save(slot, 0)
    assert model.calls == ["read_row"]
    assert [block.stop for block in _blocks(prefixes, _PROMPT)] == [4, 8, 12, 16, 20, 24, 28, 30]
    target = Slot(2, model.capacity)
    del model.calls[:]
    stored = prefixes.stored(np.append(_PROMPT, 7), _SALT)
    prefixes.restore(target, stored, np.append(_PROMPT, 7), _SALT)
    assert model.calls == ["write_row"]
    assert stored.length == target.filled == 30
    for array, expected in zip(model.read_row(2, 0, 30), entries, strict=True):
        np.testing.assert_array_equal(array, expected)


def test_only_what_is_missing_is_read_and_nothing_where_nothing_is() -> None:
    model = HashSlots()
    prefixes = Prefixes(GuardedModel(model), 1 << 20, 4)
    prefixes.save(_filled(model, _PROMPT), 0)
    other = _filled(model, _OTHER, 1)
    read: list[tuple[int, int]] = []
    whole = model.read_row

    def noted(row: int, start: int, stop: int) -> Any:
        read.append((start, stop))
        return whole(row, start, stop)

    model.read_row = noted
    prefixes.save(other, 0)
    assert read == [(12, 32)]
    prefixes.save(other, 0)
    other.hold(_OTHER[:30], [], _SALT)  # within the last block
    prefixes.save(other, 0)
    assert read == [(12, 32)]


def test_of_a_row_larger_than_the_budget_only_what_fits_is_read() -> None:
    model = HashSlots()
    model.position_bytes = 1100
    prefixes = Prefixes(GuardedModel(model), 9 * 1100, 4)
    slot = _filled(model, _PROMPT)
    del model.calls[:]
    prefixes.save(slot, 0)
    assert model.calls == ["read_row"]
    assert [block.stop for block in _blocks(prefixes, _PROMPT)] == [4, 8]


def test_whole_pieces_of_a_prompt_are_stored_by_one_call() -> None:
    model = HashSlots(invariant=False)
    prefixes = Prefixes(GuardedModel(model), 1 << 20, 4)
    stops = [16, 20, 24, 28, 30]
    slot = _filled(model, _PROMPT, cut=stops)
    del model.calls[:]
    prefixes.save(slot, 0)
    assert model.calls == ["read_row"]
    assert [block.stop for block in _blocks(prefixes, _PROMPT, stops)] == stops
    assert [block.stop for block in _blocks(prefixes, _PROMPT, [20, 30])] == []


def test_a_recurrent_model_is_filled_with_its_last_state() -> None:
    model = HashSlots(recurrent=True)
    prefixes = Prefixes(GuardedModel(model), 1 << 20, 4)
    slot = Slot(0, model.capacity)
    slot.block = prefixes.store.root(_SALT)
    model.clear_row(0)
    for stop in (16, 30):
        model.prefill_row(_PROMPT[slot.filled : stop].tolist(), 0, slot.filled)
        slot.hold(_PROMPT[:stop], [], _SALT)
        prefixes.checkpoint(slot)
    expected = model.read_row(0, 0, 30)
    del model.calls[:]
    prompt = np.append(_PROMPT, 7)
    prefixes.restore(Slot(2, model.capacity), prefixes.stored(prompt, _SALT), prompt, _SALT)
    assert model.calls == ["write_row"]
    for array, wanted in zip(model.read_row(2, 0, 30), expected, strict=True):
        np.testing.assert_array_equal(array, wanted)
