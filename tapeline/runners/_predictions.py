"""Predictions of next tokens by a bundle on a device."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, overload

import numpy as np

from generation import likeliest_ids
from lang_core import i32
from runtime import Results

LOGITS: Final = 0  # their place among results


class Rows(Sequence["Row"]):
    """Predictions for B sequences, or for T' positions of one.

    Ids and logits stay on the device until asked for, and are read once.
    """

    __slots__ = ("_count", "_ids", "_logits", "_next_ids", "_on_read", "_results")

    def __init__(self, results: Results, count: int, next_ids: int | None, on_read: Callable[[int], None]) -> None:
        """Reads nothing.

        Args:
            results: of which the first is the logits: f32 [B, V]; of score [1, T', V].
            count: how many rows there are: B, or T'.
            next_ids: which result has them, i32 [B], or [1, T']; None if the bundle lacks this result: the logits are
                read then.
            on_read: is told how many bytes of ids were read.
        """
        self._results, self._count, self._next_ids, self._on_read = results, count, next_ids, on_read
        self._logits: np.ndarray | None = None
        self._ids: Sequence[int] | None = None

    def logits(self) -> np.ndarray:
        """f32 [B, V] or [T', V]."""
        if self._logits is None:
            self._logits = self._results[LOGITS].numpy().reshape(self._count, -1)
        return self._logits

    def ids(self) -> Sequence[int]:
        """B or T' of them."""
        if self._ids is None:
            self._ids = self._read_ids()
        return self._ids

    def _read_ids(self) -> Sequence[int]:
        if self._next_ids is None:
            return likeliest_ids(self.logits()).tolist()
        self._on_read(self._count * i32.itemsize)
        if self._count == 1:
            return (self._results.number(self._next_ids),)
        return self._results[self._next_ids].numpy().reshape(-1).tolist()

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> "Row": ...

    @overload
    def __getitem__(self, index: slice) -> "list[Row]": ...

    def __getitem__(self, index: int | slice) -> "Row | list[Row]":
        rows = range(self._count)[index]
        return Row(self, rows) if isinstance(rows, int) else [Row(self, row) for row in rows]


@dataclass(slots=True)
class Row:
    """Prediction of one row: a ``Prediction`` of generation.

    Attributes:
        rows: all of them.
        index: of this one.
    """

    rows: Rows
    index: int

    def logits(self) -> np.ndarray:
        """The logits f32 [V]."""
        return self.rows.logits()[self.index]

    def likeliest(self) -> int:
        """The index of the largest logit; -1 if that is NaN or infinite."""
        return self.rows.ids()[self.index]


class Single:
    """Prediction of a step of one sequence."""

    __slots__ = ("_likeliest", "_next_ids", "_on_read", "_results")

    def __init__(self, results: Results, next_ids: int | None, on_read: Callable[[int], None]) -> None:
        """Reads nothing; arguments as of ``Rows``."""
        self._results = results
        self._next_ids = next_ids
        self._on_read = on_read
        self._likeliest: int | None = None

    def logits(self) -> np.ndarray:
        """The logits f32 [V]."""
        return self._results[LOGITS].numpy().reshape(-1)

    def likeliest(self) -> int:
        """The index of the largest logit; -1 if that is NaN or infinite."""
        if self._likeliest is None:
            if self._next_ids is None:
                self._likeliest = int(likeliest_ids(self.logits()))
            else:
                self._likeliest = self._results.number(self._next_ids)
                self._on_read(i32.itemsize)
        return self._likeliest
