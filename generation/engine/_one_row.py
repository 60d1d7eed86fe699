"""A model of one sequence as a runner of the engine: one row, with prompts in chunks of one size."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

import numpy as np

from generation import Prediction


class SequenceModel(ABC):
    """Causal language model with caches of one sequence.

    Predictions are read before the next call that makes some.

    Attributes:
        chunk: number of tokens that one call of ``prefill`` takes.
        capacity: number of positions in the caches, S.
        vocabulary: number of tokens, V.
        recurrent: whether a layer has a state that every token changes for good.
        verify_tokens: number of tokens that one call of ``verify`` takes, T'; 0 without ``verify``.
        image_token: placeholder token id for image embeddings; None for text-only models.
        position_axes: axis of positions of each array that ``read_row`` returns; None of a state or a ring.
        position_bytes: bytes of one position in all arrays that have an axis of positions.
    """

    chunk: int
    capacity: int
    vocabulary: int
    recurrent: bool = False
    verify_tokens: int = 0
    image_token: int | None = None
    position_axes: tuple[int | None, ...] = ()
    position_bytes: int = 0

    @abstractmethod
    def prefill(
        self, token_ids: np.ndarray, position: int, last: int, embeddings: np.ndarray | None = None
    ) -> Prediction:
        """Appends tokens i32 [1, chunk] and returns the prediction after row ``last``.

        Args:
            token_ids: the tokens.
            position: position of the first of them.
            last: row of the last one that counts.
            embeddings: f32 [1, chunk, D], of which those of image tokens are read; None if there are none of these.
        """

    @abstractmethod
    def decode(self, token_id: int, position: int) -> Prediction:
        """Appends a token and returns the prediction after it."""

    def verify(self, token_ids: np.ndarray, position: int, last: int) -> Sequence[Prediction]:
        """Appends rows 0 to ``last`` of tokens i32 [1, T'] and returns the prediction after every row."""
        raise NotImplementedError

    def encode_image(self, pixels: np.ndarray) -> np.ndarray:
        """Returns the embeddings f32 [T', D] of a picture, or a tile, of pixels f32 [3, height, width]."""
        raise NotImplementedError

    def begin(self, length: int) -> None:
        """Takes the number of tokens of the sequence whose tokens are appended next, which RoPE may depend on."""
        del length

    def outgrown(self, length: int) -> bool:
        """Returns whether a sequence of so many tokens needs other keys than those in the caches, for all tokens."""
        del length
        return False

    def regime(self, length: int) -> int:
        """Returns a number that is the same for lengths with the same keys."""
        del length
        return 0

    def clear_states(self) -> None:
        """Sets the states to zeros; asked of recurrent models only, as are the next two."""
        raise NotImplementedError

    def keep_states(self) -> None:
        """Keeps a copy of the states, in place of an earlier copy."""
        raise NotImplementedError

    def restore_states(self) -> None:
        """Makes the kept copy the states; there is none afterwards."""
        raise NotImplementedError

    def read_row(self, start: int, stop: int) -> Sequence[np.ndarray]:
        """Returns copies of the entries of some positions in every cache, and of whole states and rings.

        A cache [1, K, S, H] gives [K, stop - start, H], a state [1, ..] and a ring their [..].
        """
        raise NotImplementedError

    def write_row(self, start: int, arrays: Sequence[np.ndarray]) -> None:
        """Writes arrays [K, n, H] and [..] that ``read_row`` returned, beginning at position ``start``."""
        raise NotImplementedError


class OneRow:
    """Caches of one sequence on a device: a ``ModelRunner`` and a ``LengthDependentRunner`` with one row.

    Tokens are taken back by going on from an earlier position. States cannot go back: a copy of them is kept before
    tokens are verified that may be wrong, and put back if some are. The next call then runs those that are right again,
    ahead of its own: they cost rows of it but not a separate call.
    """

    def __init__(self, model: SequenceModel) -> None:
        """Takes a model with empty caches."""
        self.model: Final = model
        self.slots: Final = 1
        self.invariant: Final = False
        self.pages: Final = None
        self.capacity: Final = model.capacity
        self.vocabulary: Final = model.vocabulary
        self.chunks: Final = (model.chunk,)
        self.verify_tokens: Final = model.verify_tokens
        self.image_token: Final = model.image_token
        self.position_axes: Final = model.position_axes
        self.position_bytes: Final = model.position_bytes
        self.recurrent: Final = model.recurrent or None in model.position_axes
        # That the row holds; of a prompt also those that are yet to run.
        self._tokens: Final = np.zeros(model.capacity, np.int32)
        self._embeddings: np.ndarray | None = None  # of its image tokens, f32 [S, D]
        self._seen: Final = np.zeros(model.capacity, np.bool_)  # positions of pieces that had embeddings
        self._fed = 0  # tokens in the states
        self._kept_at = 0  # tokens in the kept copy of the states

    def prefill_row(
        self, token_ids: Sequence[int], row: int, position: int, embeddings: np.ndarray | None = None
    ) -> Prediction:
        """Appends 1 to ``chunks[0]`` tokens and returns the prediction after the last one.

        If the padding of a piece would not fit into the caches, the piece begins early enough: the repeated tokens
        write the same entries again. A model with states runs its tokens one by one instead.

        Args:
            token_ids: the tokens.
            row: 0.
            position: position of the first token.
            embeddings: f32 [tokens, D], of which those of image tokens are read; None if there are none of these.
        """
        del row
        for place, token in enumerate(self._again(position), self._kept_at):
            self.model.decode(token, place)
        self._note(token_ids, position, embeddings)
        stop, chunk = position + len(token_ids), self.chunks[0]
        start = min(position, self.capacity - chunk)
        if start < position and self.model.recurrent:
            return [self.model.decode(token, place) for place, token in enumerate(token_ids, position)][-1]
        padded = np.zeros((1, chunk), np.int32)
        padded[0, : stop - start] = self._tokens[start:stop]
        if self._embeddings is None or not self._seen[start:stop].any():
            return self.model.prefill(padded, start, stop - start - 1)
        rows = np.zeros((1, chunk, self._embeddings.shape[1]), np.float32)
        rows[0, : stop - start] = self._embeddings[start:stop]
        return self.model.prefill(padded, start, stop - start - 1, rows)

    def decode(self, rows: Sequence[int], token_ids: Sequence[int], positions: Sequence[int]) -> Sequence[Prediction]:
        """Appends a token and returns the prediction after it."""
        del rows
        return self._fed_together(token_ids, positions[0])

    def verify_row(self, token_ids: Sequence[int], row: int, position: int) -> Sequence[Prediction]:
        """Appends tokens, up to ``score_room``, and returns the predictions after each of them."""
        del row
        return self._fed_together(token_ids, position)

    def score_room(self, row: int, position: int) -> int:
        """Returns how many tokens ``verify_row`` takes: fewer while some are run again, and 1 near the caches' end."""
        del row
        begin = self._kept_at if self._pending(position) else position
        if begin + self.verify_tokens > self.capacity:
            return min(1, self.verify_tokens)
        return self.verify_tokens - (position - begin)

    def encode_image(self, pixels: np.ndarray) -> np.ndarray:
        """Returns the embeddings f32 [T', D] of a picture of pixels f32 [3, height, width]."""
        return self.model.encode_image(pixels)

    def begin_row(self, row: int, token_ids: np.ndarray) -> None:
        """See ``LengthDependentRunner``."""
        del row
        self._tokens[: len(token_ids)] = token_ids
        self.model.begin(len(token_ids))

    def outgrown(self, row: int, length: int) -> bool:
        """See ``LengthDependentRunner``."""
        del row
        return self.model.outgrown(length)

    def regime(self, length: int) -> int:
        """See ``LengthDependentRunner``."""
        return self.model.regime(length)

    def copy_row(self, source: int, target: int, count: int | None = None) -> None:
        """Does nothing: a row is a copy of itself."""
        del source, target, count

    def clear_row(self, row: int) -> None:
        """Sets the states to zeros."""
        del row
        self.model.clear_states()
        self._fed = 0

    def read_row(self, row: int, start: int, stop: int) -> Sequence[np.ndarray]:
        """Returns copies [K, stop - start, H] of some positions in every cache, and [..] of whole states and rings."""
        return self.model.read_row(start, stop)

    def write_row(self, row: int, start: int, arrays: Sequence[np.ndarray]) -> None:
        """Writes arrays [K, n, H] and [..] that ``read_row`` returned, beginning at position ``start``."""
        self.model.write_row(start, arrays)
        with_positions = zip(arrays, self.position_axes, strict=True)
        self._fed = start + max((array.shape[axis] for array, axis in with_positions if axis is not None), default=0)

    def _pending(self, position: int) -> bool:
        """Returns whether states have to go back for a call at a position."""
        return self.model.recurrent and position < self._fed

    def _again(self, position: int) -> list[int]:
        """Puts states back if a call at a position needs it, and returns the tokens to run again before it."""
        if not self._pending(position):
            return []
        self.model.restore_states()
        self._fed = self._kept_at
        return self._tokens[self._kept_at : position].tolist()

    def _note(self, token_ids: Sequence[int], position: int, embeddings: np.ndarray | None = None) -> None:
        """Records the appended tokens."""
        stop = position + len(token_ids)
        self._tokens[position:stop] = token_ids
        self._fed = stop
        if embeddings is not None and self._embeddings is None:
            self._embeddings = np.zeros((self.capacity, embeddings.shape[1]), np.float32)
        self._seen[position:stop] = embeddings is not None
        if self._embeddings is not None:
            self._embeddings[position:stop] = 0 if embeddings is None else embeddings

    def _fed_together(self, token_ids: Sequence[int], position: int) -> Sequence[Prediction]:
        """Appends tokens, after those to run again, in one call if it takes so many; else one by one."""
        again = self._again(position)
        begin, tokens = position - len(again), [*again, *token_ids]
        fits = len(tokens) <= self.verify_tokens and begin + self.verify_tokens <= self.capacity
        if not self.verify_tokens or len(tokens) == 1 or not fits:
            self._note(token_ids, position)
            return [self.model.decode(token, begin + place) for place, token in enumerate(tokens)][len(again) :]
        if self.model.recurrent and len(token_ids) > 1:
            self.model.keep_states()
            self._kept_at = begin
        self._note(token_ids, position)
        padded = np.zeros((1, self.verify_tokens), np.int32)
        padded[0, : len(tokens)] = tokens
        return self.model.verify(padded, begin, len(tokens) - 1)[len(again) : len(tokens)]
