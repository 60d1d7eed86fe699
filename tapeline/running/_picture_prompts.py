"""Prompts with pictures of SmolVLM and Idefics 3: pictures cut into tiles, and the text around these."""

from collections.abc import Sequence
from typing import Final, Protocol

from generation.engine import PromptPicture
from lang_core import ConfigError, InputError
from tapeline.bundle import Bundle
from tapeline.media.images import DEFAULT_IMAGE_LIMITS, ImageLimits, TilePreprocessor, Tiles
from tapeline.runners import takes_pictures
from tapeline.running._pictures import ImageSource, picture_of
from tapeline.text import Tokenizer
from transformer_core import config_fields
from transformer_core.models import ENCODE_IMAGE, PREFILL_EMBEDDINGS

MARK: Final = "<image>"
"""Text in a prompt where a picture belongs."""

_AROUND: Final = "<fake_token_around_image>"
_WHOLE: Final = "<global-img>"
_PROCESSOR_FILE: Final = "processor_config.json"


class TiledPicture(Protocol):
    """Picture that was cut into tiles.

    Attributes:
        rows: rows of tiles; 0 of a picture that is one tile.
        columns: columns of tiles; 0 of a picture that is one tile.
    """

    @property
    def rows(self) -> int: ...

    @property
    def columns(self) -> int: ...


class PicturePrompts:
    """Pictures of a bundle's prompts as tiles, and as the text that stands for them."""

    def __init__(self, bundle: Bundle, tokenizer: Tokenizer | None) -> None:
        """Reads the settings of pictures.

        Raises:
            InputError: the bundle does not take images, or its files do not fit each other.
            ConfigError: ``preprocessor_config.json`` is missing, or has settings that are not known.
        """
        points = {point.name: point for point in bundle.config.entry_points}
        if not takes_pictures(bundle):
            raise InputError(
                f"{bundle.path} has the entry points {', '.join(points)}, and takes no pictures: these need a bundle "
                f"of a SmolVLM with {ENCODE_IMAGE} and {PREFILL_EMBEDDINGS}"
            )
        model = bundle.config.model
        self._token, self._tokens = model["image_token"], model["image_tokens"]
        shape = points[ENCODE_IMAGE].arguments[0].spec.shape[1:]
        self._preprocess: Final = TilePreprocessor.load(bundle.path)
        if (3, self._preprocess.side, self._preprocess.side) != tuple(shape):
            raise InputError(
                f"{bundle.path}: its preprocessor_config.json makes tiles of {self._preprocess.side} pixels, the "
                f"bundle takes {list(shape)}: the file is another model's"
            )
        _check_tokens(bundle, self._tokens)
        if tokenizer is not None and tokenizer.added_id(MARK) != self._token:
            raise InputError(
                f"{tokenizer.path}: {MARK} is {tokenizer.added_id(MARK)}, in config.json it is {self._token}: the "
                "file is another model's"
            )

    def tiles(self, image: ImageSource, limits: ImageLimits = DEFAULT_IMAGE_LIMITS) -> Tiles:
        """Returns a picture as tiles.

        Raises:
            InputError: it cannot be read, or is beyond a bound.
        """
        return self._preprocess(picture_of(image, limits))

    def see(self, images: Sequence[ImageSource]) -> list[Tiles]:
        """Returns pictures as tiles. Errors are those of ``tiles``."""
        return [self.tiles(image) for image in images]

    def placed(self, token_ids: Sequence[int], pictures: Sequence[Tiles]) -> list[PromptPicture]:
        """Returns the tiles of pictures in the places of their tokens.

        Raises:
            InputError: the prompt has more or fewer image tokens, or those of a tile do not stand side by side.
        """
        pixels = [tile for picture in pictures for tile in picture.pixels]
        return [
            PromptPicture(pixels=tile, start=start, stop=start + self._tokens)
            for tile, start in zip(pixels, self._starts(token_ids, len(pixels)), strict=True)
        ]

    def check_text(self, text: str) -> None:
        """Checks that a text does not have image placeholders: a chat template adds them.

        Raises:
            InputError: it has.
        """
        if MARK in text:
            raise InputError(
                f"the turn has {MARK} in its text: give pictures beside it, and the chat template places them"
            )

    def written(self, text: str, pictures: Sequence[TiledPicture]) -> str:
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

    def _starts(self, token_ids: Sequence[int], tiles: int) -> list[int]:
        """Returns the position of the first token of each of some tiles in a prompt."""
        positions = [position for position, token_id in enumerate(token_ids) if token_id == self._token]
        if len(positions) != tiles * self._tokens:
            raise InputError(
                f"the prompt has {len(positions)} image tokens (id {self._token}), the pictures have "
                f"{tiles * self._tokens}: give as many"
            )
        starts = positions[:: self._tokens]
        if any(
            stop - start != self._tokens - 1
            for start, stop in zip(starts, positions[self._tokens - 1 :: self._tokens], strict=True)
        ):
            raise InputError(
                f"the image tokens of a tile (id {self._token}) have others among them: keep them together"
            )
        return starts

    def _around(self, picture: TiledPicture) -> str:
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
    """Checks that the processor's settings, if there are some, have as many tokens per tile as the model."""
    path = bundle.path / _PROCESSOR_FILE
    if path.exists():
        fields = config_fields(str(path), "export again")
        if fields.integer("image_seq_len", tokens) != tokens:
            raise ConfigError(
                f"{path}: field 'image_seq_len': expected {tokens}, the tokens of a tile; found "
                f"{fields.values['image_seq_len']}"
            )
