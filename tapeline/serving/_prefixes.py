"""Reuse of prefixes: in a row, from another row, from the store.

What may be reused depends on the model. An invariant one's entries are the same however they were computed, so any
prefix serves, generated tokens too; any other one's only up to where the new prompt would be cut as well, and only what
whole pieces of a prompt made. A recurrent model goes on where a row ended, and nowhere before.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from tapeline.serving._guard import GuardedModel
from tapeline.serving._pieces import whole_stops
from tapeline.serving._slot import Slot
from tapeline.serving._store import Block, BlockStore, common


@dataclass(frozen=True)
class Stored:
    """Prefix in the store.

    Attributes:
        block: its last block.
        length: number of its tokens; it may end within the block.
    """

    block: Block
    length: int


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

    def held(self, slot: Slot, prompt: np.ndarray) -> int:
        """Returns how many of a prompt's first tokens a row's entries serve. The last one is always run."""
        model, most = self._model, min(common(slot.tokens, prompt), len(prompt) - 1)
        if not model.invariant:
            stops = whole_stops(len(prompt), model.chunks)
            same = sum(1 for mine, theirs in zip(slot.cut, stops, strict=False) if mine == theirs)
            most = max((stop for stop in stops[:same] if stop <= most), default=0)
        return most if not model.recurrent or most == slot.filled else 0

    def stored(self, prompt: np.ndarray) -> Stored:
        """Returns the longest prefix of a prompt that the store has."""
        usable = prompt[:-1]
        block = self.store.deepest(usable, self._steps(len(prompt)))
        self.store.use(block)
        if self._any_length and (nearest := self.store.nearest(block, usable)):
            self.store.use(nearest[0])
            return Stored(nearest[0], block.stop + nearest[1])
        return Stored(block, block.stop)

    def restore(self, slot: Slot, stored: Stored, prompt: np.ndarray) -> None:
        """Fills a row from the store."""
        for block in stored.block.path():
            self._model.write_row(slot.row, block.start, block.arrays)
        slot.hold(prompt[: stored.length], [block.stop for block in stored.block.path()])
        slot.block = stored.block

    def save(self, slot: Slot, kept: int) -> None:
        """Stores what a row holds before all but its first ``kept`` tokens are lost."""
        if self.store.budget == 0 or slot.filled <= kept:
            return
        if self._model.recurrent:
            if self._model.invariant:
                self.checkpoint(slot)
            return
        block: Block | None = self.store.root
        while block and (stop := self._next_stop(slot, block.stop)):
            block = self._add(slot, block, stop)

    def checkpoint(self, slot: Slot) -> None:
        """Stores where a row of a recurrent model stands now."""
        if slot.block and slot.block.stop < slot.filled and self.store.holds(slot.block):
            slot.block = self._add(slot, slot.block, slot.filled)

    @property
    def _any_length(self) -> bool:
        """True where a prefix may end at any token."""
        return self._model.invariant and not self._model.recurrent

    def _steps(self, length: int) -> dict[int, int] | None:
        """Returns the pieces of a prompt, where blocks have to be these."""
        if self._model.invariant:
            return None
        stops = whole_stops(length, self._model.chunks)
        return dict(pairwise([0, *stops]))

    def _next_stop(self, slot: Slot, start: int) -> int:
        """Returns where a block of a row that starts at ``start`` is to stop; 0 where nothing is left for one."""
        if not self._model.invariant:
            return next((stop for stop in slot.cut if stop > start), 0)
        stop = (start // self._block_tokens + 1) * self._block_tokens
        return min(stop, slot.filled) if start < slot.filled else 0

    def _add(self, slot: Slot, block: Block, stop: int) -> Block | None:
        """Returns a block with a row's tokens behind another; None where none is needed, or it does not fit."""
        known = self.store.children(block, slot.tokens, None if self._any_length else stop)
        if known:
            self.store.use(known[0])
            return known[0]
        if self._any_length and (nearest := self.store.nearest(block, slot.tokens)):
            self.store.use(nearest[0])
            if block.stop + nearest[1] == slot.filled:
                return None
        tokens = slot.tokens[block.stop : stop]
        return self.store.add(block, tokens, lambda: self._model.read_row(slot.row, block.stop, stop))
