"""Pictures of one prompt: embeddings in the places of its image tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from generation import PromptMemory


@dataclass(frozen=True, slots=True)
class SeenPicture:
    """A picture as a decoder sees it.

    Attributes:
        rows: rows of tiles; 0 of a picture that is one tile.
        columns: columns of tiles; 0 of a picture that is one tile.
        embeddings: f32 [tokens, D].
        digest: number that stands for the pixels.
    """

    rows: int
    columns: int
    embeddings: np.ndarray
    digest: int


class PromptPictures:
    """Embeddings of the image tokens of one prompt.

    Attributes:
        keys: number that stands for the picture and the place in it, by the position of each image token.
    """

    def __init__(self, positions: Sequence[int], pictures: Sequence[SeenPicture]) -> None:
        """Takes the positions of the image tokens, in order, and as many embeddings of pictures."""
        self._positions: Final = np.asarray(positions, np.int64)
        self._embeddings: Final = np.concatenate([picture.embeddings for picture in pictures])
        places = [(picture.digest, place) for picture in pictures for place in range(len(picture.embeddings))]
        # Below 0, where no token is.
        self.keys: Final = {
            position: -(digest << 32) - place - 1 for position, (digest, place) in zip(positions, places, strict=True)
        }

    def rows(self, position: int, count: int, chunk: int) -> np.ndarray | None:
        """Returns f32 [1, chunk, D] with the embeddings of ``count`` tokens from a position; None without any."""
        first, last = np.searchsorted(self._positions, (position, position + count))
        if first == last:
            return None
        rows = np.zeros((1, chunk, self._embeddings.shape[1]), np.float32)
        rows[0, self._positions[first:last] - position] = self._embeddings[first:last]
        return rows


class PictureMemory:
    """Memory of prompts in which image tokens of different pictures are different tokens.

    Args:
        memory: memory of the model.
        pictures: pictures of the prompt.
    """

    def __init__(self, memory: PromptMemory, pictures: PromptPictures) -> None:
        self._memory: Final = memory
        self._keys: Final = pictures.keys

    def restore(self, token_ids: Sequence[int]) -> int:
        """Restores what the caches hold of the same tokens and pictures; otherwise as of ``PromptMemory``."""
        return self._memory.restore(self._keyed(token_ids))

    def keep(self, token_ids: Sequence[int]) -> None:
        """Records what the caches hold; as of ``PromptMemory``."""
        self._memory.keep(self._keyed(token_ids))

    def _keyed(self, token_ids: Sequence[int]) -> list[int]:
        return [self._keys.get(position, token_id) for position, token_id in enumerate(token_ids)]
