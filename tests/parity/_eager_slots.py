"""Rows of caches in the eager context: a model with slots, whose logits a bundle's are held to."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from generation import KnownLogits
from lang_core import EagerExecutionContext, EntryPoint


class EagerSlots:
    """Entry points of a model with slots, called as ``BundleSlots`` calls those of a bundle.

    Args:
        points: entry points.
        ctx: eager context with the model's weights.
    """

    def __init__(self, points: Sequence[EntryPoint], ctx: EagerExecutionContext) -> None:
        self._points, self._ctx = {point.name: point for point in points}, ctx
        donated = [argument for argument in points[0].arguments if argument.alias_result]
        self.caches: dict[str, np.ndarray] = {
            argument.name: np.zeros(argument.spec.shape, argument.spec.dtype.numpy) for argument in donated
        }
        self.slots = donated[0].spec.shape[0]

    def _call(self, name: str, *given: Any) -> np.ndarray:
        """Calls an entry point; returns the logits, where there are some."""
        values = [np.asarray(value, np.int32) for value in given]
        results = dict(self._points[name](self._ctx, *map(self._ctx.constant, [*values, *self.caches.values()])))
        self.caches = {cache: results[cache].numpy() for cache in self.caches}
        return results["logits"].numpy() if "logits" in results else np.zeros(0)

    def _size_for(self, name: str, count: int) -> tuple[str, int]:
        """Returns the smallest entry point of a kind that takes so many tokens or rows."""
        sizes = {
            max(point.arguments[0].spec.shape): other
            for other, point in self._points.items()
            if other == name or other.startswith(f"{name}_")
        }
        size = min(size for size in sizes if size >= count)
        return sizes[size], size

    def prefill_row(self, token_ids: Sequence[int], row: int, position: int) -> KnownLogits:
        name, size = self._size_for("prefill_row", len(token_ids))
        padded = [*token_ids, *[1] * (size - len(token_ids))]  # padding that would show
        return KnownLogits(self._call(name, [padded], row, position, len(token_ids) - 1)[0])

    def verify_row(self, token_ids: Sequence[int], row: int, position: int) -> Sequence[KnownLogits]:
        size = self._points["verify_row"].arguments[0].spec.shape[1]
        padded = [*token_ids, *[1] * (size - len(token_ids))]
        logits = self._call("verify_row", [padded], row, position, len(token_ids) - 1)[0]
        return [KnownLogits(line) for line in logits[: len(token_ids)]]

    def decode(self, rows: Sequence[int], token_ids: Sequence[int], positions: Sequence[int]) -> Sequence[KnownLogits]:
        name, size = self._size_for("decode", len(rows))
        others = [row for row in range(self.slots) if row not in rows][: size - len(rows)]
        rest = [0] * len(others)
        count = [1] * len(rows) + rest
        logits = self._call(
            name, np.reshape([*token_ids, *rest], (-1, 1)), [*rows, *others], [*positions, *rest], count
        )
        return [KnownLogits(line) for line in logits[: len(rows)]]

    def copy_row(self, source: int, target: int) -> None:
        self._call("copy_row", source, target)

    def clear_row(self, row: int) -> None:
        if "clear_row" in self._points:
            self._call("clear_row", row)
