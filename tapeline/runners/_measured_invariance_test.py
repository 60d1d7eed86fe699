"""A device whose bits depend on chunks, batches, rows or places is found out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from generation import KnownLogits
from tapeline.runners._measured_invariance import all_calls_agree, all_rows_agree


@dataclass(frozen=True, slots=True)
class _Size:
    size: int


@dataclass(slots=True)
class _Tables:
    """Tables of adapters; ``put`` notes how many weights an adapter changes."""

    count: int = 2
    rank: int = 3
    shapes: Mapping[str, tuple[int, int]] = field(default_factory=lambda: {"q_proj.weight": (4, 6)})
    changed: int = 0

    def put(self, number: int, factors: Mapping[str, Any]) -> None:
        assert number == 1
        self.changed = len(factors)


@dataclass(slots=True)
class _Rows:
    """Rows whose entries are sums of the tokens so far, as ``BundleSlots`` calls them; ``odd`` calls differ.

    Token 5 stands for a picture.

    Attributes:
        odd: name of the entry point, its size, and the row or position, all if None, for which bits differ.
        caches: entries by row.
    """

    odd: tuple[str, int, int | None] | None = None
    slots: int = 4
    capacity: int = 40
    vocabulary: int = 97
    chunks: tuple[int, ...] = (8, 20)
    prefills: Sequence[_Size] = (_Size(8), _Size(20))
    decodes: Sequence[_Size] = (_Size(1), _Size(2), _Size(4))
    seeing: Sequence[_Size] = (_Size(8), _Size(20))
    image_token: int = 5
    whole_pictures: bool = False
    hidden: int = 2
    verify_tokens: int = 4
    kv_cache: str | None = None
    adapters: _Tables | None = None
    numbers: list[int] = field(default_factory=lambda: [0] * 4)
    caches: np.ndarray = field(default_factory=lambda: np.zeros((4, 40), np.float32))

    def _append(self, kind: tuple[str, int], row: int, position: int, token: float) -> KnownLogits:
        before = self.caches[row, position - 1] if position else np.float32(0)
        entry = np.float32(before * np.float32(0.5) + token)
        if self.numbers[row]:
            assert self.adapters is not None
            entry, kind = np.float32(entry + self.adapters.changed), (f"adapted_{kind[0]}", kind[1])
        if self.odd is not None and self.odd[:2] == kind and self.odd[2] in (None, row, position + 10):
            entry = np.nextafter(entry, np.float32(np.inf))
        self.caches[row, position] = entry
        return KnownLogits(np.array([entry, token], np.float32))

    def run_prefill(
        self, entry: _Size, token_ids: Sequence[int], row: int, position: int, embeddings: np.ndarray | None = None
    ) -> KnownLogits:
        name, values = "prefill_row", [float(token) for token in token_ids]
        if embeddings is not None:
            name = "prefill_embeddings_row"
            seen = embeddings.sum(axis=1)
            values = [seen[i] if token == self.image_token else token for i, token in enumerate(token_ids)]
        return [self._append((name, entry.size), row, at, value) for at, value in enumerate(values, position)][-1]

    def verify_row(self, token_ids: Sequence[int], row: int, position: int) -> Sequence[KnownLogits]:
        return [self._append(("verify_row", 4), row, at, token) for at, token in enumerate(token_ids, position)]

    def run_decode(self, entry: _Size, rows: Any, tokens: Any, positions: Any) -> Any:
        given = zip(rows, positions, tokens, strict=True)
        return [self._append(("decode", entry.size), row, position, token) for row, position, token in given]

    def run_in_place(self, rows: Any, tokens: Any, positions: Any) -> Any:
        given = zip(rows, positions, tokens, strict=True)
        return [self._append(("in_place", 4), row, position, token) for row, position, token in given]

    def adapt_row(self, row: int, adapter: int) -> None:
        self.numbers[row] = adapter

    def copy_row(self, source: int, target: int) -> None:
        self.caches[target] = self.caches[source]

    def clear_row(self, row: int) -> None:
        del row

    def read_row(self, row: int, start: int, stop: int) -> Sequence[np.ndarray]:
        return [self.caches[row, start:stop].copy()]

    def write_row(self, row: int, start: int, arrays: Sequence[np.ndarray]) -> None:
        self.caches[row, start : start + len(arrays[0])] = arrays[0]


def test_rows_with_adapters_are_compared_too() -> None:
    rows: Any = _Rows(adapters=_Tables())
    assert all_calls_agree(rows)
    for odd in (("adapted_prefill_row", 8, None), ("adapted_decode", 2, 3), ("adapted_verify_row", 4, 10 + 17)):
        odd_rows: Any = _Rows(odd, adapters=_Tables())
        assert not all_calls_agree(odd_rows)
        assert (odd_rows.numbers, odd_rows.adapters.changed) == ([0] * 4, 0)  # as before


def test_bits_that_are_the_same_everywhere_are_called_so() -> None:
    rows: Any = _Rows()
    assert all_calls_agree(rows)
    short: Any = _Rows(capacity=3, chunks=(3,), prefills=[_Size(3)], seeing=[], verify_tokens=0)
    assert all_calls_agree(short)


@pytest.mark.parametrize(
    "odd",
    [
        *[
            ("prefill_row", 8, None),
            ("prefill_row", 20, None),
            ("prefill_row", 8, 10 + 17),
            ("prefill_row", 20, 10 + 39),
        ],
        *[("prefill_embeddings_row", 8, None), ("prefill_embeddings_row", 20, 10 + 17)],
        *[("verify_row", 4, None), ("verify_row", 4, 10 + 17), ("verify_row", 4, 10 + 39)],
        *[("decode", size, None) for size in (1, 2, 4)],
        *[("decode", 4, 0), ("decode", 2, 3), ("decode", 1, 10 + 29), ("in_place", 4, None)],
    ],
)
def test_one_call_that_differs_is_enough(odd: tuple[str, int, int | None]) -> None:
    rows: Any = _Rows(odd)
    assert not all_calls_agree(rows)


@pytest.mark.parametrize("odd", [("decode", 4, 0), ("prefill_row", 8, None), ("in_place", 4, None)])
def test_rows_agree_where_calls_do_not(odd: tuple[str, int, int | None]) -> None:
    rows: Any = _Rows(odd)
    assert all_rows_agree(rows)


@pytest.mark.parametrize("row", range(4))
@pytest.mark.parametrize("capacity", [3, 40])
def test_one_row_that_differs_is_enough(row: int, capacity: int) -> None:
    rows: Any = _Rows(("in_place", 4, row), capacity=capacity)
    assert not all_rows_agree(rows)
