"""Pictures of one prompt: embeddings in the places of its image tokens."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from generation import PromptMemory
from generation.engine import PromptPicture
from runtime import Session
from tapeline.bundle import Bundle
from tapeline.running._pictures import padded_call
from transformer_core.models import ENCODE_IMAGE


class PromptPictures:
    """Embeddings of the image tokens of one prompt.

    Attributes:
        keys: number that stands for the picture and the place in it, by the position of each image token.
    """

    def __init__(self, pictures: Sequence[PromptPicture], embeddings: Sequence[np.ndarray]) -> None:
        """Takes one or more pictures, in order, and the embeddings f32 [tokens, D] of each."""
        self._positions: Final = np.concatenate([np.arange(one.start, one.stop) for one in pictures])
        self._embeddings: Final = np.concatenate(embeddings)
        keys = np.concatenate([picture.keys() for picture in pictures])
        self.keys: Final[dict[int, int]] = dict(zip(self._positions.tolist(), keys.tolist(), strict=True))

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


class PictureEmbeddings:
    """Embeddings of pictures by a bundle's vision tower and projection; those of the last prompt are kept."""

    def __init__(self, bundle: Bundle, session: Session) -> None:
        """Takes a bundle whose prompts may have pictures; runs nothing yet."""
        self._batch: Final[int] = bundle.entry_point(ENCODE_IMAGE).arguments[0].spec.shape[0]
        self._encode: Final = session.function(ENCODE_IMAGE)
        self._known: dict[bytes, np.ndarray] = {}

    def of(self, pictures: Sequence[PromptPicture]) -> PromptPictures:
        """Returns the embeddings of a prompt's pictures, of which there is at least one."""
        new = list({one.digest: one.pixels for one in pictures if one.digest not in self._known}.items())
        for start in range(0, len(new), self._batch):
            part = new[start : start + self._batch]
            embeddings = padded_call(self._encode, np.stack([pixels for _, pixels in part]), self._batch)
            self._known |= {digest: row for (digest, _), row in zip(part, embeddings, strict=False)}
        self._known = {one.digest: self._known[one.digest] for one in pictures}
        return PromptPictures(pictures, [self._known[one.digest] for one in pictures])
