"""Model with failures that are distinguished from all others."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from generation import Prediction
from generation.engine._errors import ModelFailedError
from generation.engine._runner import AdaptedRunner, LengthDependentRunner, ModelRunner


class GuardedModel:
    """Model of which every call, and every reading of a prediction, raises ``ModelFailedError`` or nothing.

    Attributes:
        slots, capacity, vocabulary, verify_tokens, invariant, recurrent, position_axes, position_bytes, pages: the
            model's.
        chunks: those of the model that are to be used, ascending.
    """

    def __init__(self, model: ModelRunner, largest_chunk: int | None = None) -> None:
        """Guards a model.

        Args:
            model: the model.
            largest_chunk: of its chunks, larger ones are not used, except for the smallest of all; None uses all.
        """
        self._model = model
        self.slots = model.slots
        self.capacity = model.capacity
        self.vocabulary = model.vocabulary
        self.chunks = tuple(
            chunk for chunk in model.chunks if not largest_chunk or chunk <= max(largest_chunk, model.chunks[0])
        )
        self.verify_tokens = model.verify_tokens
        self.invariant = model.invariant
        self.recurrent = model.recurrent
        self.position_axes = model.position_axes
        self.position_bytes = model.position_bytes
        self.pages = model.pages
        self._lengths = model if isinstance(model, LengthDependentRunner) else None
        self._adapted = model if isinstance(model, AdaptedRunner) else None

    def release(self) -> None:
        """Lets go of the model, so that its memory is free; calls fail from now on."""
        del self._model
        self._lengths = self._adapted = None

    def prefill_row(
        self, token_ids: Sequence[int], row: int, position: int, embeddings: np.ndarray | None = None
    ) -> Prediction:
        """See ``ModelRunner``."""
        with guarded("prefill_row"):
            return _GuardedPrediction(self._model.prefill_row(token_ids, row, position, embeddings))

    def encode_image(self, pixels: np.ndarray) -> np.ndarray:
        """See ``ModelRunner``."""
        with guarded("encode_image"):
            return self._model.encode_image(pixels)

    def decode(self, rows: Sequence[int], token_ids: Sequence[int], positions: Sequence[int]) -> Sequence[Prediction]:
        """See ``ModelRunner``."""
        with guarded("decode"):
            predictions = self._model.decode(rows, token_ids, positions)
            return [_GuardedPrediction(predictions[index]) for index in range(len(rows))]

    def verify_row(self, token_ids: Sequence[int], row: int, position: int) -> Sequence[Prediction]:
        """See ``ModelRunner``."""
        with guarded("verify_row"):
            return [_GuardedPrediction(prediction) for prediction in self._model.verify_row(token_ids, row, position)]

    def score_room(self, row: int, position: int) -> int:
        """See ``ModelRunner``."""
        with guarded("score_room"):
            return self._model.score_room(row, position)

    def begin_row(self, row: int, token_ids: np.ndarray) -> None:
        """See ``LengthDependentRunner``; does nothing if keys do not depend on the length."""
        if self._lengths is not None:
            with guarded("begin_row"):
                self._lengths.begin_row(row, token_ids)

    def adapt_row(self, row: int, adapter: int) -> None:
        """See ``AdaptedRunner``; does nothing if rows never have one."""
        if self._adapted is not None:
            with guarded("adapt_row"):
                self._adapted.adapt_row(row, adapter)

    def outgrown(self, row: int, length: int) -> bool:
        """See ``LengthDependentRunner``."""
        return self._lengths is not None and self._lengths.outgrown(row, length)

    def regime(self, length: int) -> int:
        """See ``LengthDependentRunner``."""
        return 0 if self._lengths is None else self._lengths.regime(length)

    def copy_row(self, source: int, target: int, count: int) -> None:
        """See ``ModelRunner``."""
        with guarded("copy_row"):
            self._model.copy_row(source, target, count)

    def clear_row(self, row: int) -> None:
        """See ``ModelRunner``."""
        with guarded("clear_row"):
            self._model.clear_row(row)

    def read_row(self, row: int, start: int, stop: int) -> Sequence[np.ndarray]:
        """See ``ModelRunner``."""
        with guarded("read_row"):
            return self._model.read_row(row, start, stop)

    def write_row(self, row: int, start: int, arrays: Sequence[np.ndarray]) -> None:
        """See ``ModelRunner``."""
        with guarded("write_row"):
            self._model.write_row(row, start, arrays)


class _GuardedPrediction:
    __slots__ = ("unguarded",)

    def __init__(self, prediction: Prediction) -> None:
        self.unguarded = prediction

    def logits(self) -> np.ndarray:
        with guarded("reading of logits"):
            return self.unguarded.logits()

    def likeliest(self) -> int:
        with guarded("reading of the likeliest token"):
            return self.unguarded.likeliest()


def unguarded(prediction: Prediction) -> Prediction:
    """Returns the model's own prediction; its errors count as the model's."""
    return prediction.unguarded if isinstance(prediction, _GuardedPrediction) else prediction


@contextmanager
def guarded(call: str) -> Iterator[None]:
    """Turns whatever a call of the model raises into ``ModelFailedError``."""
    try:
        yield
    except Exception as error:
        raise ModelFailedError(
            f"the model's {call} failed ({type(error).__name__}: {error}): all answers that were running have ended; "
            "ask again"
        ) from error
