"""A bundle of a decoder that sees pictures: pictures in, embeddings and the text around them out."""

import hashlib
from collections.abc import Sequence
from typing import Final

import numpy as np

from lang_core import ConfigError, InputError
from tapeline.bundle import Bundle
from tapeline.engines import Session
from tapeline.images import DEFAULT_IMAGE_LIMITS, ImageLimits, TilePreprocessor
from tapeline.running._pictures import ImageSource, padded_call, picture_of
from tapeline.running._prompt_pictures import PromptPictures, SeenPicture
from tapeline.text import Tokenizer
from transformer_core import config_fields
from transformer_core.models import ENCODE_IMAGE, PREFILL_EMBEDDINGS

MARK: Final = "<image>"
"""Text in a prompt where a picture belongs."""

_AROUND: Final = "<fake_token_around_image>"
_WHOLE: Final = "<global-img>"
_PROCESSOR_FILE: Final = "processor_config.json"


class Eyes:
    """Vision tower and projection of a bundle, and the prompts of SmolVLM and Idefics 3."""

    def __init__(self, bundle: Bundle, session: Session, tokenizer: Tokenizer | None) -> None:
        """Reads the settings of pictures; runs nothing yet.

        Raises:
            InputError: the bundle takes no pictures, or its files do not fit each other.
            ConfigError: ``preprocessor_config.json`` is missing, or has settings that are not known.
        """
        points = {point.name: point for point in bundle.config.entry_points}
        if not {ENCODE_IMAGE, PREFILL_EMBEDDINGS} <= set(points):
            raise InputError(
                f"{bundle.path} has the entry points {', '.join(points)}, and takes no pictures: these need a bundle "
                f"of a SmolVLM with {ENCODE_IMAGE} and {PREFILL_EMBEDDINGS}"
            )
        model = bundle.config.model
        self._token, self._tokens = model["image_token"], model["image_tokens"]
        self._batch, *shape = points[ENCODE_IMAGE].arguments[0].spec.shape
        self._preprocess: Final = TilePreprocessor.load(bundle.path)
        if [3, self._preprocess.side, self._preprocess.side] != shape:
            raise InputError(
                f"{bundle.path}: its preprocessor_config.json makes tiles of {self._preprocess.side} pixels, the "
                f"bundle takes {shape}: the file is another model's"
            )
        self._encode: Final = session.function(ENCODE_IMAGE)
        _check_tokens(bundle, self._tokens)
        if tokenizer is not None and tokenizer.added_id(MARK) != self._token:
            raise InputError(
                f"{tokenizer.path}: {MARK} is {tokenizer.added_id(MARK)}, in config.json it is {self._token}: the "
                "file is another model's"
            )

    def see(self, images: Sequence[ImageSource], limits: ImageLimits = DEFAULT_IMAGE_LIMITS) -> list[SeenPicture]:
        """Returns what the decoder sees of pictures; one is in memory at a time.

        Raises:
            InputError: a picture cannot be read, or is beyond a bound.
        """
        return [self._seen(image, limits) for image in images]

    def check_text(self, text: str) -> None:
        """Checks that a user's turn has no place for a picture of its own: the chat template makes those.

        Raises:
            InputError: it has.
        """
        if MARK in text:
            raise InputError(
                f"the turn has {MARK} in its text: give pictures beside it, and the chat template places them"
            )

    def written(self, text: str, pictures: Sequence[SeenPicture]) -> str:
        """Returns a prompt in which each ``<image>`` is the tokens of a picture, as transformers' processors write it.

        Raises:
            InputError: there are more or fewer of them than pictures.
        """
        first, *rest = text.split(MARK)
        if len(rest) != len(pictures):
            raise InputError(
                f"the prompt has {len(rest)} places for pictures, {len(pictures)} given: put {MARK} where each "
                "belongs, or ask in a chat, whose template does"
            )
        return first + "".join(self._around(picture) + after for picture, after in zip(pictures, rest, strict=True))

    def placed(self, token_ids: Sequence[int], pictures: Sequence[SeenPicture]) -> PromptPictures | None:
        """Returns the embeddings of a prompt's image tokens; None without pictures.

        Raises:
            InputError: there are more or fewer image tokens than embeddings.
        """
        positions = [position for position, token_id in enumerate(token_ids) if token_id == self._token]
        wanted = sum(len(picture.embeddings) for picture in pictures)
        if len(positions) != wanted:
            raise InputError(
                f"the prompt has {len(positions)} image tokens (id {self._token}), the pictures have {wanted}: give as "
                "many"
            )
        return PromptPictures(positions, pictures) if pictures else None

    def _seen(self, image: ImageSource, limits: ImageLimits) -> SeenPicture:
        tiles = self._preprocess(picture_of(image, limits))
        pixels = tiles.pixels
        starts = range(0, len(pixels), self._batch)
        parts = [padded_call(self._encode, pixels[start : start + self._batch], self._batch) for start in starts]
        embeddings = np.concatenate(parts)
        digest = int.from_bytes(hashlib.sha256(pixels.tobytes()).digest()[:16], "big")
        return SeenPicture(tiles.rows, tiles.columns, embeddings.reshape(-1, embeddings.shape[-1]), digest)

    def _around(self, picture: SeenPicture) -> str:
        tokens = MARK * self._tokens
        whole = f"{_AROUND}{_WHOLE}{tokens}{_AROUND}"
        if not picture.rows:
            return whole
        rows = (
            "".join(f"{_AROUND}<row_{row + 1}_col_{column + 1}>{tokens}" for column in range(picture.columns))
            for row in range(picture.rows)
        )
        return "".join(f"{row}\n" for row in rows) + f"\n{whole}"


def _check_tokens(bundle: Bundle, tokens: int) -> None:
    """Checks that the processor's settings, where there are some, have as many tokens per tile as the model."""
    path = bundle.path / _PROCESSOR_FILE
    if path.exists():
        fields = config_fields(str(path), "export again")
        if fields.integer("image_seq_len", tokens) != tokens:
            raise ConfigError(
                f"{path}: field 'image_seq_len': expected {tokens}, the tokens of a tile; found "
                f"{fields.values['image_seq_len']}"
            )
