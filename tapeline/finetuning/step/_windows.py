"""Windows of a stream of tokens, the training data of a language model."""

from collections.abc import Sequence

import numpy as np

from lang_core import InputError


class Windows:
    """Windows of documents that stand one after the other, each between a begin and an end token.

    Every window begins with the begin token, as prompts do: one half of them, in the mean, at a document, the other
    half anywhere. After the last document comes the first one.

    Args:
        documents: token ids without begin and end.
        begin: the token before a document.
        end: the token after one.
        length: tokens per window.
        seed: random seed; the windows are the same with each version of NumPy.

    Raises:
        InputError: documents are missing, or one is empty.
    """

    def __init__(self, documents: Sequence[Sequence[int]], begin: int, end: int, length: int, seed: int = 0) -> None:
        if not documents or not all(len(document) for document in documents):
            raise InputError(f"training needs documents with tokens, found {len(documents)}, with empty ones or none")
        framed = [[begin, *document, end] for document in documents]
        self._stream = np.concatenate(framed).astype(np.int32)
        self._starts = np.cumsum([0, *map(len, framed)])[:-1]
        self._begin, self._length = begin, length
        self._bits = np.random.PCG64(seed)

    @property
    def tokens(self) -> int:
        """Number of tokens in all."""
        return len(self._stream)

    def draw(self, count: int) -> np.ndarray:
        """Draws windows i32 [count, length]."""
        windows = np.empty((count, self._length), np.int32)
        for window in windows:
            halves, place = (int(raw) for raw in self._bits.random_raw(2) >> np.uint64(32))
            start = self._starts[place % len(self._starts)] if halves % 2 else place % len(self._stream)
            window[:] = np.take(self._stream, np.arange(start, start + self._length), mode="wrap")
            window[0] = self._begin
        return windows
