"""A bundle of a decoder that sees pictures: pictures in, embeddings and the text around them out."""

import hashlib
from collections.abc import Sequence
from typing import Final

import numpy as np

from runtime import Session
from tapeline.bundle import Bundle
from tapeline.media.images import DEFAULT_IMAGE_LIMITS, ImageLimits
from tapeline.running._picture_prompts import PicturePrompts
from tapeline.running._pictures import ImageSource, padded_call
from tapeline.running._prompt_pictures import PromptPictures, SeenPicture
from tapeline.text import Tokenizer
from transformer_core.models import ENCODE_IMAGE


class Eyes(PicturePrompts):
    """Vision tower and projection of a bundle, and the prompts of SmolVLM and Idefics 3."""

    def __init__(self, bundle: Bundle, session: Session, tokenizer: Tokenizer | None) -> None:
        """Reads the settings of pictures; runs nothing yet. Errors are those of ``PicturePrompts``."""
        super().__init__(bundle, tokenizer)
        self._batch: Final[int] = bundle.entry_point(ENCODE_IMAGE).arguments[0].spec.shape[0]
        self._encode: Final = session.function(ENCODE_IMAGE)

    def see(self, images: Sequence[ImageSource], limits: ImageLimits = DEFAULT_IMAGE_LIMITS) -> list[SeenPicture]:
        """Returns what the decoder sees of pictures; one is in memory at a time.

        Raises:
            InputError: a picture cannot be read, or is beyond a bound.
        """
        return [self._seen(image, limits) for image in images]

    def placed(self, token_ids: Sequence[int], pictures: Sequence[SeenPicture]) -> PromptPictures | None:
        """Returns the embeddings of a prompt's image tokens; None without pictures.

        Raises:
            InputError: there are more or fewer image tokens than embeddings.
        """
        positions = self.positions(token_ids, sum(len(picture.embeddings) for picture in pictures))
        return PromptPictures(positions, pictures) if pictures else None

    def _seen(self, image: ImageSource, limits: ImageLimits) -> SeenPicture:
        tiles = self.tiles(image, limits)
        pixels = tiles.pixels
        starts = range(0, len(pixels), self._batch)
        parts = [padded_call(self._encode, pixels[start : start + self._batch], self._batch) for start in starts]
        embeddings = np.concatenate(parts)
        digest = int.from_bytes(hashlib.sha256(pixels.tobytes()).digest()[:16], "big")
        return SeenPicture(tiles.rows, tiles.columns, embeddings.reshape(-1, embeddings.shape[-1]), digest)
