"""Model that says what a script says: after a token at a position, the script's token of the next position."""

import time
from collections.abc import Sequence
from typing import Final

import numpy as np

from generation import KnownLogits, Prediction


class ScriptSlots:
    """``ModelRunner`` whose likeliest token at each position is that of a script, whatever was said before.

    Args:
        script: token of each position.
        vocabulary: size of the vocabulary, V.
        slots: number of rows.
        seconds: time of a step.
    """

    def __init__(self, script: Sequence[int], vocabulary: int, slots: int = 4, seconds: float = 0.0) -> None:
        self._script: Final = tuple(script)
        self._seconds: Final = seconds
        self.slots, self.capacity, self.vocabulary = slots, len(script), vocabulary
        self.chunks, self.invariant, self.recurrent = (8, 32), True, False
        self.position_axes, self.position_bytes = (1,), 4
        self.verify_tokens, self.pages, self.image_token = 0, None, None
        self.fails = False

    def prefill_row(
        self, token_ids: Sequence[int], row: int, position: int, embeddings: np.ndarray | None = None
    ) -> Prediction:
        """Returns the prediction after some tokens."""
        del row, embeddings
        return self._next(position + len(token_ids))

    def encode_image(self, pixels: np.ndarray) -> np.ndarray:
        """Returns no embeddings."""
        return pixels[0, :0]

    def decode(self, rows: Sequence[int], token_ids: Sequence[int], positions: Sequence[int]) -> Sequence[Prediction]:
        """Returns the predictions after a token of each row."""
        del rows, token_ids
        time.sleep(self._seconds)
        if self.fails:
            raise RuntimeError("the device has caught fire")
        return [self._next(position + 1) for position in positions]

    def verify_row(self, token_ids: Sequence[int], row: int, position: int) -> Sequence[Prediction]:
        """Returns the predictions after each of some tokens."""
        del row
        return [self._next(position + count) for count in range(1, len(token_ids) + 1)]

    def score_room(self, row: int, position: int) -> int:
        return self.verify_tokens

    def copy_row(self, source: int, target: int, count: int | None = None) -> None:
        """Copies nothing: rows hold nothing."""

    def clear_row(self, row: int) -> None:
        """Clears nothing."""

    def read_row(self, row: int, start: int, stop: int) -> Sequence[np.ndarray]:
        """Returns no arrays."""
        del row
        return [np.zeros((1, stop - start), np.float32)]

    def write_row(self, row: int, start: int, arrays: Sequence[np.ndarray]) -> None:
        """Writes nothing."""

    def _next(self, position: int) -> Prediction:
        logits = np.zeros(self.vocabulary, np.float32)
        logits[self._script[min(position, self.capacity - 1)]] = 10.0
        return KnownLogits(logits)
