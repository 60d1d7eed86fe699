"""The engine's model: B sequences in the rows of one set of caches.

Axes: B rows, S positions, V vocabulary.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from generation import Prediction
from generation.engine._pool import PagePool


class ModelRunner(Protocol):
    """Causal language model with caches of B rows, each of which holds one sequence.

    Predictions are read before the next call that makes some.
    """

    @property
    def slots(self) -> int:
        """Number of rows, B."""
        ...

    @property
    def capacity(self) -> int:
        """Positions of a row, S."""
        ...

    @property
    def vocabulary(self) -> int:
        """Number of tokens, V."""
        ...

    @property
    def chunks(self) -> tuple[int, ...]:
        """Numbers of tokens that calls of ``prefill_row`` are made for, ascending."""
        ...

    @property
    def verify_tokens(self) -> int:
        """Number of tokens that calls of ``verify_row`` take; 0 if there are none, or their bits differ."""
        ...

    @property
    def invariant(self) -> bool:
        """True if every token's bits are the same in whatever chunk and batch it is computed."""
        ...

    @property
    def recurrent(self) -> bool:
        """True if some layer has a state or a ring, so that a row can only continue at its end."""
        ...

    @property
    def position_axes(self) -> tuple[int | None, ...]:
        """Axis of positions of each array that ``read_row`` returns; None of a state or a ring."""
        ...

    @property
    def position_bytes(self) -> int:
        """Bytes of one position of a row in all arrays that have an axis of positions."""
        ...

    @property
    def pages(self) -> PagePool | None:
        """Pages of the rows, to be reserved for a request before it gets its row; None if rows have all positions.

        Such a model is not recurrent.
        """
        ...

    @property
    def image_token(self) -> int | None:
        """Placeholder token id for image embeddings; None for text-only models."""
        ...

    def prefill_row(
        self, token_ids: Sequence[int], row: int, position: int, embeddings: np.ndarray | None = None
    ) -> Prediction:
        """Appends 1 to ``max(chunks)`` tokens to a row at ``position``, in the smallest chunk that fits, padded.

        Args:
            token_ids: the tokens.
            row: the row.
            position: position of the first token.
            embeddings: f32 [tokens, D] for the tokens that stand for pictures; None if none does.

        Returns:
            The prediction after the last of them.
        """
        ...

    def encode_image(self, pixels: np.ndarray) -> np.ndarray:
        """Returns the embeddings f32 [T', D] of a picture f32 [3, height, width]; asked only of models that see."""
        ...

    def decode(self, rows: Sequence[int], token_ids: Sequence[int], positions: Sequence[int]) -> Sequence[Prediction]:
        """Appends a token to each of 1 to B distinct rows, and returns the predictions after them.

        An invariant model takes the smallest batch that fits. Other calls always run all B rows, each in its place,
        with unnamed rows idle, or each row alone.
        """
        ...

    def verify_row(self, token_ids: Sequence[int], row: int, position: int) -> Sequence[Prediction]:
        """Appends 1 to ``verify_tokens`` tokens to a row at ``position``.

        Tokens are taken back by going on from an earlier position.

        Returns:
            The predictions after each of them, bit-equal to those of ``decode``.
        """
        ...

    def score_room(self, row: int, position: int) -> int:
        """Returns how many tokens ``verify_row`` takes next at a position of a row: ``verify_tokens``, or fewer."""
        ...

    def copy_row(self, source: int, target: int, count: int | None = None) -> None:
        """Makes a row's states those of another, and its first ``count`` positions; all if None."""
        ...

    def clear_row(self, row: int) -> None:
        """Makes a row's states zero; does nothing if there are none."""
        ...

    def read_row(self, row: int, start: int, stop: int) -> Sequence[np.ndarray]:
        """Returns copies of a row's entries of positions ``start`` to ``stop`` in every cache, and of whole states.

        A cache [B, K, S, H] gives [K, stop - start, H], a state [B, ..] its row [..].
        """
        ...

    def write_row(self, row: int, start: int, arrays: Sequence[np.ndarray]) -> None:
        """Writes into a row arrays of the shapes that ``read_row`` returns, beginning at position ``start``."""
        ...


@runtime_checkable
class LengthDependentRunner(Protocol):
    """Runner with keys that depend on the length of the sequence, as with RoPE of dynamic NTK and longrope."""

    def begin_row(self, row: int, token_ids: np.ndarray) -> None:
        """Takes all known tokens i64 [P] of the sequence that is appended to a row next."""
        ...

    def outgrown(self, row: int, length: int) -> bool:
        """Returns whether a row's sequence of so many tokens needs other keys than it has, for all tokens."""
        ...

    def regime(self, length: int) -> int:
        """Returns a number that is the same for lengths with the same keys; 0 for most."""
        ...


@runtime_checkable
class AdaptedRunner(Protocol):
    """Runner whose rows may have adapters of the model."""

    @property
    def adapter_count(self) -> int:
        """Number of adapters; 0 if the model takes none."""
        ...

    def adapt_row(self, row: int, adapter: int) -> None:
        """Makes the next calls of a row add an adapter, by its number from 1 on; 0 for none."""
        ...
