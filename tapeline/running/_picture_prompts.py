"""Prompts with pictures: pictures cut into tiles, and the text around these."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final

from generation.engine import PromptPicture
from lang_core import InputError
from tapeline.bundle import Bundle
from tapeline.media.images import DEFAULT_IMAGE_LIMITS, PREPROCESSOR_FILE, ImageLimits, Tiles
from tapeline.runners import takes_pictures
from tapeline.running._picture_forms import PICTURE_FORMS, PictureForm, PicturePart, TiledPicture
from tapeline.running._pictures import ImageSource, picture_of
from tapeline.text import Tokenizer
from transformer_core import ENCODE_IMAGE, PREFILL_EMBEDDINGS


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
                f"of a model that sees, with {ENCODE_IMAGE} and {PREFILL_EMBEDDINGS}"
            )
        model = bundle.config.model
        self._token: Final[int] = model["image_token"]
        self._shape: Final = tuple(points[ENCODE_IMAGE].arguments[0].spec.shape[1:])
        is_dynamic = "merge" in model.get("vision", {})
        self._most: Final = self._shape[0] // model["vision"]["merge"] ** 2 if is_dynamic else None
        self._form: Final = _form_of(bundle)(bundle.path, model, tokenizer)
        self._directory: Final = bundle.path
        self._whole: Final[bool] = model.get("image_whole", False)
        side, mark = self._form.side(), self._form.token
        if side is not None:
            self._check_shape((3, *side))
        if tokenizer is not None and tokenizer.added_id(mark) != self._token:
            raise InputError(
                f"{tokenizer.path}: {mark} is {tokenizer.added_id(mark)}, in config.json it is {self._token}: the "
                "file is another model's"
            )

    def tiles(self, image: ImageSource, limits: ImageLimits = DEFAULT_IMAGE_LIMITS) -> Tiles:
        """Returns a picture as tiles.

        Raises:
            InputError: it cannot be read, or is beyond a bound.
        """
        tiles = self._form.tiles(picture_of(image, limits))
        self._check_shape(tiles.pixels.shape[1:])
        return tiles

    def see(self, images: Sequence[ImageSource]) -> list[Tiles]:
        """Returns pictures as tiles. Errors are those of ``tiles``."""
        return [self.tiles(image) for image in images]

    def placed(self, token_ids: Sequence[int], pictures: Sequence[Tiles]) -> list[PromptPicture]:
        """Returns the tiles of pictures in the places of their tokens.

        Raises:
            InputError: the prompt has more or fewer image tokens, those of a tile do not stand side by side, or there
                are more pictures than the model takes.
        """
        self._check_count(len(pictures))
        parts = [part for picture in pictures for part in self._form.parts(picture)]
        spans = self._spans(token_ids, parts)
        return [
            PromptPicture(
                pixels=part.pixels, start=start, stop=stop, whole=self._whole, order=part.order, weights=part.weights
            )
            for part, (start, stop) in zip(parts, spans, strict=True)
        ]

    def check_text(self, text: str) -> None:
        """Checks that a text does not have image placeholders: a chat template adds them.

        Raises:
            InputError: it has.
        """
        mark = next((mark for mark in (self._form.mark, self._form.token) if mark in text), None)
        if mark is not None:
            raise InputError(
                f"the turn has {mark} in its text: give pictures beside it, and the chat template places them"
            )

    def written(self, text: str, pictures: Sequence[TiledPicture]) -> str:
        """Returns a prompt in which each mark is the tokens of a picture, as transformers' processors write it.

        The mark is ``<image>`` in most models.

        Raises:
            InputError: there are more or fewer of them than pictures, or more than the model takes.
        """
        self._check_count(len(pictures))
        first, *rest = text.split(self._form.mark)
        if len(rest) != len(pictures):
            mark = self._form.mark
            raise InputError(
                f"the prompt has {len(rest)} places for pictures, {len(pictures)} given: put {mark} where each "
                "belongs, or ask in a chat, whose template does"
            )
        return first + "".join(
            self._form.around(picture) + after for picture, after in zip(pictures, rest, strict=True)
        )

    def _spans(self, token_ids: Sequence[int], parts: Sequence[PicturePart]) -> list[tuple[int, int]]:
        """Returns the positions of the first token, and behind the last one, of parts of pictures."""
        positions = [position for position, token_id in enumerate(token_ids) if token_id == self._token]
        counts = [part.count for part in parts]
        if len(positions) != sum(counts):
            raise InputError(
                f"the prompt has {len(positions)} image tokens (id {self._token}), the pictures have {sum(counts)}: "
                "give as many"
            )
        stops = list(accumulate(counts))
        spans = [(positions[stop - count], positions[stop - 1] + 1) for count, stop in zip(counts, stops, strict=True)]
        if not all(part.stands(token_ids[slice(*span)], self._token) for part, span in zip(parts, spans, strict=True)):
            raise InputError(
                f"the image tokens of a tile (id {self._token}) have others among them: keep them together"
            )
        if self._whole and any(stop == start for (_, stop), (start, _) in pairwise(spans)):
            raise InputError(
                f"two pictures of the prompt stand side by side (tokens of id {self._token}), and would see each "
                "other: put text between them"
            )
        return spans

    def _check_count(self, count: int) -> None:
        most = self._form.most_pictures
        if most is not None and count > most:
            raise InputError(
                f"the prompt has {count} pictures, and {self._directory} takes {most} per prompt: ask about one at a "
                "time, in prompts of their own"
            )

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        if self._most is not None:
            count, (height, width) = self._form.count(shape), shape[1:]
            if count > self._most:
                raise InputError(
                    f"a picture of {width} x {height} pixels, resized, has {count} tokens, and {self._directory} takes "
                    f"up to {self._most}: cut it"
                )
        elif tuple(shape) != self._shape:
            height, width = shape[1:]
            raise InputError(
                f"{self._directory}: its {PREPROCESSOR_FILE} makes tiles of {height} x {width} pixels, the bundle "
                f"takes {list(self._shape)}: the file is another model's"
            )


def _form_of(bundle: Bundle) -> type[PictureForm]:
    name = bundle.config.model.get("image_form", "grid")  # bundles of older versions have SmolVLM's form
    if name not in PICTURE_FORMS:
        raise InputError(
            f"{bundle.path}: its pictures have the form {name!r}; expected one of {', '.join(PICTURE_FORMS)}: a "
            "newer version made the bundle: update tapeline"
        )
    return PICTURE_FORMS[name]
