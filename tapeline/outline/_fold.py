"""Collapses what repeats in a sequence of boxes, as it comes: work and memory do not depend on how often it repeats."""

from collections.abc import Hashable, Sequence
from typing import Final

from tapeline.outline._outline import Box, Item, Repeat, boxes_of, without_numbers

# The longest sequence of items that is recognised when it repeats.
MAX_PERIOD: Final = 64


class Folder:
    """A sequence of boxes.

    Attributes:
        items: the boxes so far, what repeats collapsed.
    """

    def __init__(self) -> None:
        self.items: list[Item] = []
        self._keys: list[int] = []  # of the items: equal where they read the same
        self._numbers: dict[Hashable, int] = {}
        self._stands_for: dict[int, int] = {}
        self._uses: dict[int, dict[tuple[int, str], None]] = {}

    def append(self, box: Box, uses: dict[tuple[int, str], None]) -> None:
        """Adds a box.

        Args:
            box: the box.
            uses: (id of another box or port, type) of the values that it uses.
        """
        self.items.append(box)
        self._keys.append(self._key(box))
        self._uses[box.id] = uses
        while self._fold():
            pass

    def id(self, number: int) -> int:
        """The id of the box that stands for a box."""
        while number in self._stands_for:
            number = self._stands_for[number]
        return number

    def uses(self, box: Box) -> dict[tuple[int, str], None]:
        """What a box, in any repetition, uses."""
        return {(self.id(source), kind): None for source, kind in self._uses[box.id]}

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _fold(self) -> bool:
        """Collapses the end of the sequence, once; says whether it could."""
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
        """Equal for items that read the same but for numbers in their paths."""
        if isinstance(item, Repeat):
            return self._number(("repeat", item.count, *map(self._key, item.items)))
        operations, parameters = tuple(item.operations.items()), tuple(item.parameters.values())
        return self._number((without_numbers(item.path), item.calls, operations, parameters))

    def _same(self, items: Sequence[Item], keys: Sequence[int]) -> bool:
        return len(items) == len(keys) and all(self._key(a) == b for a, b in zip(items, keys, strict=True))

    def _merge(self, again: Sequence[Item], first: Sequence[Item]) -> None:
        pairs = list(zip(boxes_of(again), boxes_of(first), strict=True))
        for box, kept in pairs:
            self._stands_for[box.id] = kept.id
            if kept.calls is None:
                kept.path = without_numbers(kept.path)
            kept.parameters = {without_numbers(path): kind for path, kind in kept.parameters.items()}
        for box, kept in pairs:
            merged = {**self._uses[kept.id], **self._uses.pop(box.id)}
            self._uses[kept.id] = {(self.id(source), kind): None for source, kind in merged}
