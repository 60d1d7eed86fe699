"""Results of whole texts, with the tokens that were read and cut off."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from tapeline.text import EncodedText


class TextArray(np.ndarray):
    """Array with a row for each text; the model may have read the beginning of a long text only.

    Results of indexing and of arithmetic lack counts: their ``tokens`` and ``truncated`` are empty.

    Attributes:
        tokens: number of tokens of each text that were read, i64 [texts].
        truncated: number of tokens of each text that were cut off, i64 [texts].
    """

    tokens: np.ndarray
    truncated: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, texts: Sequence[EncodedText]) -> Self:
        """Returns the values [texts, ..] with the counts of the texts."""
        array = np.asarray(values).view(cls)
        array.tokens = np.array([len(text.ids) for text in texts], np.int64)
        array.truncated = np.array([text.truncated for text in texts], np.int64)
        return array

    @classmethod
    def counted(cls, values: np.ndarray, parts: Sequence[EncodedText], count: int) -> Self:
        """Returns the values [texts, ..] with the counts of ``count`` parts of each text, which were read apart."""
        array = np.asarray(values).view(cls)
        array.tokens = np.array([len(part.ids) for part in parts], np.int64).reshape(-1, count).sum(1)
        array.truncated = np.array([part.truncated for part in parts], np.int64).reshape(-1, count).max(1, initial=0)
        return array

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Returns the rows of arrays one after the other, with their counts."""
        array = np.concatenate(parts).view(cls)
        array.tokens = np.concatenate([part.tokens for part in parts])
        array.truncated = np.concatenate([part.truncated for part in parts])
        return array

    def part(self, rows: slice) -> Self:
        """Returns some rows, with their counts."""
        array = np.asarray(self[rows]).view(type(self))
        array.tokens, array.truncated = self.tokens[rows], self.truncated[rows]
        return array

    def __array_finalize__(self, source: Any) -> None:
        self.tokens = self.truncated = np.zeros((0,), np.int64)


def similarities(function: str, vectors: np.ndarray, others: np.ndarray | None = None) -> np.ndarray:
    """Returns how alike each vector is to each other one, [N, M] of [N, D] and [M, D], as sentence-transformers does.

    Args:
        function: ``cosine``, ``dot``, or one of the negated distances ``euclidean`` and ``manhattan``.
        vectors: the vectors.
        others: the vectors that they are compared with; None for themselves.

    >>> similarities("manhattan", np.array([[0.0, 1.0], [2.0, 2.0]])).tolist()
    [[-0.0, -3.0], [-3.0, -0.0]]
    """
    others = vectors if others is None else others
    if function in ("euclidean", "manhattan"):
        distance = np.linalg.norm(vectors[:, None] - others[None], 2 if function == "euclidean" else 1, axis=-1)
        return -distance
    if function == "cosine":
        return _normed(vectors) @ _normed(others).T
    return vectors @ others.T


def _normed(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
