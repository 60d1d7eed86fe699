"""Folding of repetitions in a sequence of boxes, as it is read: memory does not grow with the number of repetitions."""

from collections.abc import Hashable, Sequence
from typing import Final

from tapeline.analysis.outline._outline import Box, Item, Repeat, boxes_of, without_numbers

# Length of the longest sequence of items that is recognised as a repetition.
MAX_PERIOD: Final = 64


class Folder:
    """Sequence of boxes that folds repetitions as boxes are appended.

    Attributes:
        items: boxes so far, with repetitions folded.
    """

    def __init__(self) -> None:
        self.items: list[Item] = []
        self._keys: list[int] = []  # of the items; equal for items that look the same
        self._numbers: dict[Hashable, int] = {}
        self._merged_into: dict[int, int] = {}
        self._uses: dict[int, dict[tuple[int, str], None]] = {}

    def append(self, box: Box, uses: dict[tuple[int, str], None]) -> None:
        """Appends a box.

        Args:
            box: box to append.
            uses: (id of another box or port, type) of the values that it uses.
        """
        self.items.append(box)
        self._keys.append(self._key(box))
        self._uses[box.id] = uses
        while self._fold():
            pass

    def id(self, number: int) -> int:
        """Returns the id of the box that a box was merged into, or its own."""
        while number in self._merged_into:
            number = self._merged_into[number]
        return number

    def uses(self, box: Box) -> dict[tuple[int, str], None]:
        """Returns the values that a box uses in any repetition."""
        return {(self.id(source), kind): None for source, kind in self._uses[box.id]}

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _fold(self) -> bool:
        """Folds the end of the sequence once; returns whether there was a repetition."""
        keys, size = self._keys, len(self.items)
        for period in range(1, min(MAX_PERIOD, size - 1) + 1):
            before = self.items[-period - 1]
            if isinstance(before, Repeat) and self._same(before.items, keys[-period:]):
                self._merge(self.items[-period:], before.items)
                del self.items[-period:], keys[-period:]
                before.count += 1
            elif keys[-1] == keys[-period - 1] and 2 * period <= size and keys[-period:] == keys[-2 * period : -period]:
                first, again = self.items[-2 * period : -period], self.items[-period:]
                self._merge(again, first)
                self.items[-2 * period :] = [before := Repeat(2, first)]
                del keys[-2 * period + 1 :]
            else:
                continue
            keys[-1] = self._key(before)
            return True
        return False

    def _key(self, item: Item) -> int:
        """Returns a key that is equal for items that look the same except for numbers in paths."""
        if isinstance(item, Repeat):
            return self._number(("repeat", item.count, *map(self._key, item.items)))
        operations, parameters = tuple(item.operations.items()), tuple(item.parameters.values())
        return self._number((without_numbers(item.path), item.calls, operations, parameters))

    def _same(self, items: Sequence[Item], keys: Sequence[int]) -> bool:
        return len(items) == len(keys) and all(self._key(a) == b for a, b in zip(items, keys, strict=True))

    def _merge(self, again: Sequence[Item], first: Sequence[Item]) -> None:
        pairs = list(zip(boxes_of(again), boxes_of(first), strict=True))
        for box, kept in pairs:
            self._merged_into[box.id] = kept.id
            if kept.calls is None:
                kept.path = without_numbers(kept.path)
            kept.parameters = {without_numbers(path): kind for path, kind in kept.parameters.items()}
        for box, kept in pairs:
            merged = {**self._uses[kept.id], **self._uses.pop(box.id)}
            self._uses[kept.id] = {(self.id(source), kind): None for source, kind in merged}
