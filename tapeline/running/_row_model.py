"""A row of a bundle with slots, as a model for one sequence."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from generation import Prediction
from lang_core import TensorSpec
from tapeline.running._model import BundleModel
from tapeline.running._prompt_pictures import PromptPictures
from tapeline.running._slots import BundleSlots


class RowModel(BundleModel):
    """Row of a bundle with slots; its prompts are cut into the largest chunks, and what is left into smaller ones."""

    def __init__(self, rows: BundleSlots, row: int = 0) -> None:
        """Takes a row, of which the model knows nothing yet."""
        self._rows: Final = rows
        self._row: Final = row
        self.batch, self.chunk, self.capacity = 1, self._rows.chunks[-1], self._rows.capacity
        self.vocabulary, self.token_bytes = self._rows.vocabulary, 0
        specs = self._rows.cache_specs
        self.cache_specs = {name: TensorSpec((1, *spec.shape[1:]), spec.dtype) for name, spec in specs.items()}
        self.recurrent = any(name.endswith("_state") for name in specs)
        self._pictures: PromptPictures | None = None

    @property
    def rope_regime(self) -> int:
        """0: frequencies of RoPE are the same for all lengths."""
        return 0

    def begin(self, length: int) -> None:
        """Does nothing, as frequencies of RoPE are the same for all lengths."""

    def outgrown(self, length: int) -> bool:
        """Returns False, as frequencies of RoPE are the same for all lengths."""
        del length
        return False

    def read_cache(self, name: str) -> np.ndarray:
        """Returns a copy of the row of a cache or state."""
        return self._rows.read_cache(name, self._row)[None]

    def write_caches(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Replaces the row in caches or states."""
        for name, array in arrays.items():
            self._rows.write_cache(name, self._row, array[0])

    def prefill(self, token_ids: np.ndarray, position: int, last: int) -> Prediction:
        """Appends rows 0 to ``last`` of tokens i32 [1, chunk] and returns the prediction after them."""
        tokens, at = token_ids[0, : last + 1].tolist(), 0
        prediction: Prediction | None = None
        while at < len(tokens):
            size = max((chunk for chunk in self._rows.chunks if chunk <= len(tokens) - at), default=len(tokens) - at)
            seen = None if self._pictures is None else self._pictures.rows(position + at, size, size)
            embeddings = None if seen is None else seen[0]
            prediction = self._rows.prefill_row(tokens[at : at + size], self._row, position + at, embeddings)
            at += size
        assert prediction is not None
        return prediction

    def decode(self, token_id: int, position: int) -> Prediction:
        """Appends a token and returns the prediction after it."""
        return self._rows.decode([self._row], [token_id], [position])[0]
