"""What a bundle on a device says of the tokens that come next."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from compile_hlo.iree import DeviceTensor
from transformer_core.generation import likeliest_ids


class Rows(Sequence["Row"]):
    """Of B sequences, or of T' places of one. Ids and logits stay on the device until asked for, and are read once."""

    def __init__(self, logits: DeviceTensor, next_ids: DeviceTensor | None, on_read: Callable[[int], None]) -> None:
        """Reads nothing.

        Args:
            logits: f32 [B, V]; of score [1, T', V].
            next_ids: i32 [B], or [1, T']; None where the bundle has no such result: the logits are read then.
            on_read: is told how many bytes of ids were read.
        """
        self._tensor, self._next_ids, self._on_read = logits, next_ids, on_read
        self._logits: np.ndarray | None = None
        self._ids: np.ndarray | None = None

    def logits(self) -> np.ndarray:
        """f32 [B, V] or [T', V]."""
        if self._logits is None:
            self._logits = self._tensor.numpy().reshape(len(self), -1)
        return self._logits

    def ids(self) -> np.ndarray:
        """i32 [B] or [T']."""
        if self._ids is None:
            if self._next_ids is None:
                self._ids = likeliest_ids(self.logits())
            else:
                self._ids = self._next_ids.numpy().reshape(-1)
                self._on_read(self._ids.nbytes)
        return self._ids

    def __len__(self) -> int:
        return math.prod(self._tensor.shape[:-1])

    @overload
    def __getitem__(self, index: int) -> "Row": ...

    @overload
    def __getitem__(self, index: slice) -> "list[Row]": ...

    def __getitem__(self, index: int | slice) -> "Row | list[Row]":
        rows = range(len(self))[index]
        return Row(self, rows) if isinstance(rows, int) else [Row(self, row) for row in rows]


@dataclass(frozen=True, slots=True)
class Row:
    """Of one of them: a ``Prediction`` of transformer_core/generation.

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
        """The index of the largest logit; -1 where that is NaN or infinite."""
        return int(self.rows.ids()[self.index])
