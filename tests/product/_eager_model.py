"""A model for generation in the eager context: whose tokens a bundle's are held to."""

from typing import Any

import numpy as np

from generation import KnownLogits
from generation.engine import SequenceModel
from lang_core import EagerExecutionContext, EntryPoint, WeightSource


class EagerModel(SequenceModel):
    """A model for generation, in the eager context."""

    def __init__(self, prefill: EntryPoint, decode: EntryPoint, weights: WeightSource, vocabulary: int) -> None:
        self.chunk: int = prefill.arguments[0].spec.shape[1]
        caches = [argument.spec.shape for argument in prefill.arguments if argument.alias_result]
        self.capacity: int = caches[0][2]
        self.vocabulary = vocabulary
        self._prefill, self._decode, self._ctx = prefill, decode, EagerExecutionContext(weights)
        self._length = 0
        self._caches: list[Any] = [
            np.zeros(argument.spec.shape, argument.spec.dtype.numpy)
            for argument in prefill.arguments
            if argument.alias_result
        ]

    def begin(self, length: int) -> None:
        self._length = length

    def prefill(
        self, token_ids: np.ndarray, position: int, last: int, embeddings: np.ndarray | None = None
    ) -> KnownLogits:
        return self._run(self._prefill, token_ids, np.int32(position), np.int32(last))

    def decode(self, token_id: int, position: int) -> KnownLogits:
        return self._run(self._decode, np.array([[token_id]], np.int32), np.int32(position))

    def _run(self, entry: EntryPoint, *given: Any) -> KnownLogits:
        if any(argument.name == "length" for argument in entry.arguments):
            given = *given, np.int32(self._length)
        results = dict(entry(self._ctx, *given, *self._caches))
        logits = results.pop("logits").numpy()[0]
        self._caches = [results[argument.alias_result] for argument in entry.arguments if argument.alias_result]
        return KnownLogits(logits)
