"""Pages of the rows: an answer gets its row once all that it may need are sure to be there."""

from collections.abc import Sequence
from typing import Final

from generation.engine._answer import Answer
from generation.engine._guard import GuardedModel
from generation.engine._prefixes import Prefixes
from generation.engine._slot import Slot


class RowPages:
    """Pages of one model's rows; if rows have all positions, nothing is ever short."""

    def __init__(self, model: GuardedModel, slots: Sequence[Slot], prefixes: Prefixes) -> None:
        """Takes the model, its rows, and the store for evicted entries."""
        self._pool: Final = model.pages
        self._slots: Final = slots
        self._prefixes: Final = prefixes
        self._positions: Final = model.slots * model.capacity

    def reserve(self, slot: Slot, answer: Answer) -> bool:
        """Reserves the pages of an answer, and returns False if those that are running need too many.

        Free rows lose theirs, the one that was free for the longest first; the prefix store gets their entries.
        """
        if self._pool is None:
            return True
        while not self._pool.reserve(slot.row, answer.positions):
            idle = [other for other in self._slots if self._is_idle(other) and other is not slot]
            if not idle:
                return False
            oldest = min(idle, key=lambda other: other.used)
            self._prefixes.save(oldest, 0)
            self.forget(oldest)
        return True

    def free(self, slot: Slot) -> None:
        """Cancels a row's reservation; the row keeps its pages."""
        if self._pool is not None:
            self._pool.release(slot.row)

    def forget(self, slot: Slot) -> None:
        """Notes that the entries of a free row are not needed."""
        slot.forget()
        if self._pool is not None:
            self._pool.drop(slot.row)

    def usage(self) -> float:
        """Returns the part of all pages, or positions, that running answers hold, 0 to 1."""
        running = [slot for slot in self._slots if slot.answer]
        if self._pool is None:
            return sum(slot.filled for slot in running) / self._positions
        return self._pool.used([slot.row for slot in running]) / self._pool.usable

    def _is_idle(self, slot: Slot) -> bool:
        return self._pool is not None and slot.answer is None and bool(self._pool.held(slot.row))
