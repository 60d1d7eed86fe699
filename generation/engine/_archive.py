"""Blocks of the prefix store outside the engine, such as in a file that outlives the process."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np


@dataclass(frozen=True, slots=True)
class ArchivedBlock:
    """Block of the prefix store.

    Attributes:
        salt: salt of the requests that may reuse it.
        parent: index of the block that it continues in the sequence of blocks; -1 for the first of a prefix.
        tokens: keys of its tokens, i64 [n].
        arrays: results of ``ModelRunner.read_row`` for them.
    """

    salt: str
    parent: int
    tokens: np.ndarray
    arrays: Sequence[np.ndarray]


class PrefixArchive(Protocol):
    """Keeper of the prefix store's blocks while the engine does not run."""

    def load(self, rules: str) -> Iterable[ArchivedBlock]:
        """Returns the blocks that were saved last by the same rules, parents before their children.

        Args:
            rules: text of everything beside the model that decides which blocks may be reused.
        """
        ...

    def save(self, rules: str, blocks: Sequence[ArchivedBlock]) -> None:
        """Saves blocks, parents before their children."""
        ...
