"""Reuse of prefixes: in a row, from another row, from the store.

The reusable entries depend on the model. An invariant one's entries are the same however they were computed, so any
prefix serves, generated tokens too; any other one's only up to where the new prompt would be cut as well, and only
entries from whole pieces of a prompt. A recurrent model continues only at the end of a row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from generation.engine._archive import ArchivedBlock, PrefixArchive
from generation.engine._guard import GuardedModel
from generation.engine._pieces import whole_stops
from generation.engine._request import RowAdapter
from generation.engine._slot import Slot
from generation.engine._store import Block, BlockStore, common


@dataclass(frozen=True)
class Stored:
    """Prefix in the store.

    Attributes:
        block: its last block.
        length: number of its tokens; it may end within the block.
    """

    block: Block
    length: int


@dataclass(frozen=True, slots=True)
class RowPrefix:
    """First tokens of a prompt and a row's entries of them, to be kept outside the engine.

    Attributes:
        token_ids: the tokens i64 [n], which whole pieces of the prompt have run.
        arrays: results of ``ModelRunner.read_row`` for them: caches [K, n, H], states [..].
        regime: ``LengthDependentRunner.regime`` of the sequence that they were run for; 0 of other models.
    """

    token_ids: np.ndarray
    arrays: Sequence[np.ndarray]
    regime: int


def salt_of_regime(salt: str | None, regime: int) -> str | None:
    """Returns the salt of sequences with the keys of a regime."""
    return salt if salt is None or not regime else f"{salt}\0{regime}"


def salt_of_adapter(salt: str | None, adapter: RowAdapter | None) -> str | None:
    """Returns the salt of sequences with the entries of an adapter."""
    return salt if salt is None or adapter is None else f"{salt}\0adapter {adapter.key}"


class Prefixes:
    """Prefixes of one model.

    Attributes:
        store: blocks that outlive rows.
    """

    def __init__(self, model: GuardedModel, budget: int, block_tokens: int) -> None:
        """Begins with an empty store."""
        self._model: Final = model
        self._block_tokens: Final = block_tokens
        self.store: Final = BlockStore(budget)

    def held(self, slot: Slot, prompt: np.ndarray, salt: str | None) -> int:
        """Returns how many of a prompt's first tokens a row's entries serve. The last one is always run.

        Args:
            slot: the row.
            prompt: keys of the prompt's tokens, i64 [P].
            salt: salt of the entries that may be reused; None for nobody's.
        """
        if salt is None or slot.salt != salt:
            return 0
        model, most = self._model, min(common(slot.tokens, prompt), len(prompt) - 1)
        if not model.invariant:
            stops = whole_stops(len(prompt), model.chunks)
            same = sum(1 for mine, theirs in zip(slot.cut, stops, strict=False) if mine == theirs)
            most = max((stop for stop in stops[:same] if stop <= most), default=0)
        return most if not model.recurrent or most == slot.filled else 0

    def stored(self, prompt: np.ndarray, salt: str) -> Stored:
        """Returns the longest prefix of a prompt that the store has for a salt."""
        usable = prompt[:-1]
        block = self.store.deepest(salt, usable, self._block_stops(len(prompt)))
        self.store.use(block)
        if self._any_length and (nearest := self.store.nearest(block, usable)):
            self.store.use(nearest[0])
            return Stored(nearest[0], block.stop + nearest[1])
        return Stored(block, block.stop)

    def restore(self, slot: Slot, stored: Stored, prompt: np.ndarray, salt: str) -> None:
        """Fills a row from the store's blocks of a salt, in one call of the model."""
        self._model.write_row(slot.row, 0, self._arrays(stored.block))
        if self._model.invariant:
            cut = [block.stop for block in stored.block.path()]
        else:
            cut = whole_stops(stored.length, self._model.chunks)
        slot.hold(prompt[: stored.length], cut, salt)
        slot.block = stored.block

    def load(self, archive: PrefixArchive) -> None:
        """Fills the store with the blocks of an archive, as far as the budget goes."""
        added: list[Block | None] = []
        for one in archive.load(self._rules()):
            parent = self.store.root(one.salt) if one.parent < 0 else added[one.parent]
            usable = parent is not None and (one.parent < 0 or self.store.holds(parent))
            block = self.store.add(parent, one.tokens, lambda one=one: one.arrays) if parent and usable else None
            added.append(block)

    def archive(self, archive: PrefixArchive, slots: Sequence[Slot]) -> None:
        """Saves the store and the entries of rows in an archive."""
        for slot in slots:
            self.save(slot, 0)
        indices: dict[int, int] = {}
        blocks: list[ArchivedBlock] = []
        for salt, block in self.store.blocks():
            assert block.parent
            indices[id(block)] = len(blocks)
            blocks.append(ArchivedBlock(salt, indices.get(id(block.parent), -1), block.tokens, block.arrays))
        archive.save(self._rules(), blocks)

    def _rules(self) -> str:
        model = self._model
        return f"{model.invariant} {model.recurrent} {model.chunks} {model.position_axes} {self._block_tokens}"

    def put(self, slot: Slot, prefix: RowPrefix, salt: str) -> None:
        """Makes a free row hold a prefix for a salt."""
        salt = salt_of_regime(salt, prefix.regime) or ""
        count = len(prefix.token_ids)
        self._model.write_row(slot.row, 0, prefix.arrays)
        slot.hold(prefix.token_ids, whole_stops(count, self._model.chunks), salt)
        slot.block = self.store.add(self.store.root(salt), slot.tokens, lambda: prefix.arrays)

    def whole(self, slot: Slot, below: int) -> RowPrefix | None:
        """Returns the most that whole pieces have run, fewer tokens than ``below``; None if there is nothing."""
        stop = max((stop for stop in slot.cut if stop < below), default=0)
        if slot.salt is None or not stop:
            return None
        arrays = self._kept_states(slot, stop) if self._model.recurrent else self._model.read_row(slot.row, 0, stop)
        regime = int(slot.salt.partition("\0")[2] or 0)
        return None if arrays is None else RowPrefix(slot.tokens[:stop].copy(), arrays, regime)

    def _kept_states(self, slot: Slot, stop: int) -> Sequence[np.ndarray] | None:
        """Returns the contents of a row at a position, from the store; None if that has it no more."""
        block = slot.block
        while block is not None and block.stop > stop:
            block = block.parent
        return self._arrays(block) if block and block.stop == stop and self.store.holds(block) else None

    def _arrays(self, block: Block) -> list[np.ndarray]:
        """Returns the result of ``read_row`` for the row of a block, from position 0 on."""
        path = block.path()
        axes = self._model.position_axes
        return [_joined([block.arrays[index] for block in path], axis) for index, axis in enumerate(axes)]

    def save(self, slot: Slot, kept: int) -> None:
        """Stores a row's entries before all but its first ``kept`` tokens are overwritten, by one call of the model."""
        if self.store.budget == 0 or slot.salt is None or slot.filled <= kept:
            return
        if self._model.recurrent:
            if self._model.invariant:
                self.checkpoint(slot)
            return
        block = self.store.root(slot.salt)
        while known := self._known(slot, block):
            block = known
        if not self._held_by_child(slot, block):
            self._add(slot, block, self._stops(slot, block.stop))

    def checkpoint(self, slot: Slot) -> None:
        """Stores the present state of a row of a recurrent model."""
        block = slot.block
        if self.store.budget and block and block.stop < slot.filled and self.store.holds(block):
            slot.block = self._child(slot, block, slot.filled) or self._add(slot, block, [slot.filled])

    @property
    def _any_length(self) -> bool:
        """True if a prefix may end at any token."""
        return self._model.invariant and not self._model.recurrent

    def _block_stops(self, length: int) -> Sequence[int] | None:
        """Returns the positions at which blocks of a prompt may stop; None for anywhere.

        Two prompts that both have a piece that stops at some position have the same pieces up to there.
        """
        return None if self._model.invariant else whole_stops(length, self._model.chunks)

    def _next_stop(self, slot: Slot, start: int) -> int:
        """Returns the stop of a row's block that starts at ``start``; 0 if nothing is left for one."""
        if not self._model.invariant:
            return next((stop for stop in slot.cut if stop > start), 0)
        stop = (start // self._block_tokens + 1) * self._block_tokens
        return min(stop, slot.filled) if start < slot.filled else 0

    def _stops(self, slot: Slot, start: int) -> list[int]:
        """Returns the stops of a row's blocks behind a position, as far as the store could ever hold them."""
        most, stops = self.store.budget // max(1, self._model.position_bytes), []
        while (stop := self._next_stop(slot, start)) and stop <= most:
            stops.append(stop)
            start = stop
        return stops

    def _known(self, slot: Slot, block: Block) -> Block | None:
        """Returns the block of the store that has a row's next tokens behind another one."""
        stop = self._next_stop(slot, block.stop)
        return self._child(slot, block, None if self._any_length else stop) if stop else None

    def _child(self, slot: Slot, block: Block, stop: int | None) -> Block | None:
        known = self.store.children(block, slot.tokens, None if stop is None else [stop])
        if known:
            self.store.use(known[0])
        return known[0] if known else None

    def _held_by_child(self, slot: Slot, block: Block) -> bool:
        """Returns whether a longer block has all tokens of a row that are left."""
        nearest = self.store.nearest(block, slot.tokens) if self._any_length else None
        if nearest:
            self.store.use(nearest[0])
        return nearest is not None and block.stop + nearest[1] == slot.filled

    def _add(self, slot: Slot, block: Block, stops: Sequence[int]) -> Block | None:
        """Adds blocks with a row's tokens behind another, and returns the last; None if one does not fit."""
        if not stops:
            return None
        begin, last = block.stop, block
        arrays = self._model.read_row(slot.row, begin, stops[-1])
        for stop in stops:
            part = slice(last.stop - begin, stop - begin)
            added = self.store.add(last, slot.tokens[last.stop : stop], partial(self._cut, arrays, part))
            if added is None:
                return None
            last = added
        return last

    def _cut(self, arrays: Sequence[np.ndarray], part: slice) -> list[np.ndarray]:
        """Returns a part of the positions of the arrays of ``read_row``."""
        axes = self._model.position_axes
        return [
            array if axis is None else array[(*[slice(None)] * axis, part)]
            for array, axis in zip(arrays, axes, strict=True)
        ]


def _joined(parts: Sequence[np.ndarray], axis: int | None) -> np.ndarray:
    """Returns blocks' arrays one after the other; the last one for arrays without an axis of positions."""
    return parts[-1] if axis is None or len(parts) == 1 else np.concatenate(parts, axis)
