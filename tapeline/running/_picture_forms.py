"""How pictures stand in prompts: their tiles, and the text for them, as the processor of each family writes it."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from generation.engine import image_places
from lang_core import ConfigError, InputError
from tapeline.media.images import (
    BoxPreprocessor,
    CanvasPreprocessor,
    GridPreprocessor,
    ImagePreprocessor,
    Picture,
    PinpointPreprocessor,
    TilePreprocessor,
    Tiles,
)
from tapeline.text import Tokenizer
from transformer_core import ConfigFields, config_fields

_PROCESSOR_FILE: Final = "processor_config.json"
_TOKENIZER_FILE: Final = "tokenizer_config.json"
_REMEDY: Final = "export again"
_SHRINKS_ABOVE: Final = 1.1  # transformers': a little more than the bound is left as it is


class TiledPicture(Protocol):
    """Picture that was cut into tiles.

    Attributes:
        pixels: f32 [tiles, 3, height, width].
        rows: rows of tiles; 0 of a picture that is one tile.
        columns: columns of tiles; 0 of a picture that is one tile.
        size: height and width of the picture as it was; None where nothing depends on it.
    """

    @property
    def pixels(self) -> np.ndarray: ...

    @property
    def rows(self) -> int: ...

    @property
    def columns(self) -> int: ...

    @property
    def size(self) -> tuple[int, int] | None: ...


@dataclass(frozen=True, slots=True)
class PicturePart:
    """Part of a picture with tokens side by side, or the whole of it.

    Attributes:
        pixels: f32 [3, height, width]; with ``order`` [tiles, 3, height, width].
        count: number of image tokens.
        order: as of ``PromptPicture``.
        weights: as of ``PromptPicture``.
    """

    pixels: np.ndarray
    count: int
    order: np.ndarray | None = None
    weights: np.ndarray | None = None

    def stands(self, token_ids: Sequence[int], image_token: int) -> bool:
        """Returns whether tokens have the part's image tokens in their places, and nothing else there."""
        expected = np.ones(self.count, np.bool_) if self.order is None else image_places(self.order)
        return np.array_equal(np.asarray(token_ids) == image_token, expected)


class PictureForm(ABC):
    """Tiles of a family's pictures, and the text that stands for them.

    Args:
        directory: the bundle.
        model: the model's entries in the description of the bundle.
        tokenizer: the bundle's tokenizer; None if it has none.

    Attributes:
        mark: text in a prompt where a picture belongs.
        token: text of the placeholder token; the mark in most families.
        most_pictures: most pictures of a prompt; None for any number.

    Raises:
        InputError: the files do not fit each other.
        ConfigError: ``preprocessor_config.json`` is missing, or has settings that are not known.
    """

    mark: str = "<image>"
    most_pictures: int | None = None

    def __init__(self, directory: Path, model: dict[str, Any], tokenizer: Tokenizer | None) -> None:
        self._tokens: Final[int] = model["image_tokens"]

    @property
    def token(self) -> str:
        return self.mark

    @abstractmethod
    def tiles(self, picture: Picture) -> Tiles:
        """Returns a picture as tiles.

        Raises:
            InputError: it is beyond a bound.
        """

    @abstractmethod
    def around(self, picture: TiledPicture) -> str:
        """Returns the text that stands for a picture, with as many marks as it has tokens."""

    def parts(self, picture: Tiles) -> list[PicturePart]:
        """Returns the parts of a picture, each of which is encoded by itself: its tiles in most families."""
        return [PicturePart(tile, self.count(tile.shape)) for tile in picture.pixels]

    def count(self, shape: tuple[int, ...]) -> int:
        """Returns the number of tokens of a tile [3, height, width]."""
        del shape
        return self._tokens

    @abstractmethod
    def side(self) -> tuple[int, int] | None:
        """Returns height and width of a tile, if the settings alone say it."""


class GridForm(PictureForm):
    """SmolVLM and Idefics 3: each tile with its row and column, then the whole."""

    _AROUND: Final = "<fake_token_around_image>"
    _WHOLE: Final = "<global-img>"

    def __init__(self, directory: Path, model: dict[str, Any], tokenizer: Tokenizer | None) -> None:
        super().__init__(directory, model, tokenizer)
        self._preprocess: Final = TilePreprocessor.load(directory)
        fields = _fields(directory / _PROCESSOR_FILE)
        _check_tokens(fields, "image_seq_len", fields.integer("image_seq_len", self._tokens), self._tokens)

    def tiles(self, picture: Picture) -> Tiles:
        """Returns a picture as tiles, row by row, then the whole."""
        return self._preprocess(picture)

    def side(self) -> tuple[int, int]:
        """Returns height and width of a tile."""
        return self._preprocess.side, self._preprocess.side

    def around(self, picture: TiledPicture) -> str:
        """Returns rows of tiles, then the whole."""
        tokens = self.mark * self._tokens
        whole = f"{self._AROUND}{self._WHOLE}{tokens}{self._AROUND}"
        if not picture.rows:
            return whole
        rows = (
            "".join(f"{self._AROUND}<row_{row + 1}_col_{column + 1}>{tokens}" for column in range(picture.columns))
            for row in range(picture.rows)
        )
        return "".join(f"{row}\n" for row in rows) + f"\n{whole}"


class PlainForm(PictureForm):
    """LLaVA: a picture is one tile, and its tokens stand alone."""

    def __init__(self, directory: Path, model: dict[str, Any], tokenizer: Tokenizer | None) -> None:
        super().__init__(directory, model, tokenizer)
        self._preprocess: Final = ImagePreprocessor.load(directory)
        self.mark = _mark_of(tokenizer, model["image_token"], self.mark)
        _check_patches(directory, model, self._tokens)

    def tiles(self, picture: Picture) -> Tiles:
        """Returns a picture as one tile."""
        return Tiles(self._preprocess(picture)[None], 0, 0)

    def side(self) -> None:
        """Returns nothing: the size may depend on the picture."""

    def around(self, picture: TiledPicture) -> str:
        """Returns the tokens of the picture."""
        return self.mark * self._tokens


class EnclosedForm(PictureForm):
    """InternVL: the tokens of all tiles between a first and a last token."""

    def __init__(self, directory: Path, model: dict[str, Any], tokenizer: Tokenizer | None) -> None:
        super().__init__(directory, model, tokenizer)
        self._preprocess: Final = CanvasPreprocessor.load(directory)
        self.mark = _mark_of(tokenizer, model["image_token"], "<IMG_CONTEXT>")
        fields = _fields(directory / _TOKENIZER_FILE)
        self._first = str(fields.values.get("start_image_token", "<img>"))
        self._last = str(fields.values.get("end_image_token", "</img>"))
        fields = _fields(directory / _PROCESSOR_FILE)
        _check_tokens(fields, "image_seq_length", fields.integer("image_seq_length", self._tokens), self._tokens)

    def tiles(self, picture: Picture) -> Tiles:
        """Returns a picture as tiles, row by row, then the whole if there are several."""
        return self._preprocess(picture)

    def side(self) -> None:
        """Returns nothing: the size may depend on the picture."""

    def around(self, picture: TiledPicture) -> str:
        """Returns the tokens of all tiles between the first and the last token."""
        return f"{self._first}{self.mark * self._tokens * len(picture.pixels)}{self._last}"


class FramedForm(PictureForm):
    """Gemma 3: a picture's tokens between two marks and empty lines; the first mark is the place of a picture."""

    def __init__(self, directory: Path, model: dict[str, Any], tokenizer: Tokenizer | None) -> None:
        super().__init__(directory, model, tokenizer)
        self._preprocess: Final = ImagePreprocessor.load(directory)
        first, last = model["image_marks"]
        self.mark = _mark_of(tokenizer, first, "<start_of_image>")
        self._last = _mark_of(tokenizer, last, "<end_of_image>")
        self._token = _mark_of(tokenizer, model["image_token"], "<image_soft_token>")
        fields = _fields(directory / _PROCESSOR_FILE)
        _check_tokens(fields, "image_seq_length", fields.integer("image_seq_length", self._tokens), self._tokens)

    @property
    def token(self) -> str:
        """Text of the placeholder token."""
        return self._token

    def tiles(self, picture: Picture) -> Tiles:
        """Returns a picture as one tile."""
        return Tiles(self._preprocess(picture)[None], 0, 0)

    def side(self) -> None:
        """Returns nothing: the size may depend on the picture."""

    def around(self, picture: TiledPicture) -> str:
        """Returns the tokens between the marks."""
        return f"\n\n{self.mark}{self._token * self._tokens}{self._last}\n\n"


class AnyresForm(PictureForm):
    """LLaVA-NeXT: the whole picture, then the rows of all tiles, without the margins, with a token behind each row."""

    def __init__(self, directory: Path, model: dict[str, Any], tokenizer: Tokenizer | None) -> None:
        super().__init__(directory, model, tokenizer)
        self._preprocess: Final = PinpointPreprocessor.load(directory)
        self.mark = _mark_of(tokenizer, model["image_token"], self.mark)
        canvases = [list(canvas) for canvas in self._preprocess.canvases]
        if canvases != model["image_canvases"]:
            raise ConfigError(
                f"{directory / 'preprocessor_config.json'}: field 'image_grid_pinpoints': expected "
                f"{model['image_canvases']}, as config.json says; found {canvases}: copy the model's own file, and "
                "export again"
            )
        self._patches: Final[int] = self._preprocess.side // model["vision"]["patch"][0]
        _check_patches(directory, model, self._tokens)

    def tiles(self, picture: Picture) -> Tiles:
        """Returns the whole picture, then its tiles."""
        return self._preprocess(picture)

    def side(self) -> tuple[int, int]:
        """Returns height and width of a tile."""
        return self._preprocess.side, self._preprocess.side

    def parts(self, picture: Tiles) -> list[PicturePart]:
        """Returns the picture as one part."""
        order = self._order(picture)
        return [PicturePart(picture.pixels, len(order), order)]

    def around(self, picture: TiledPicture) -> str:
        """Returns the tokens of the picture."""
        return self.mark * len(self._order(picture))

    def _order(self, picture: TiledPicture) -> np.ndarray:
        """Returns the rows i32 [tokens] of the embeddings of all tiles; behind those of each is the end of a row."""
        kept = self._kept(picture)
        rows = np.concatenate([kept, np.full((len(kept), 1), self._tokens)], 1)
        return np.concatenate([np.arange(self._tokens), rows.ravel()]).astype(np.int32)

    def _kept(self, picture: TiledPicture) -> np.ndarray:
        """Returns the rows [rows, columns] of the embeddings of all tiles' patches, without the margins."""
        assert picture.size is not None
        side, per_tile = self._patches, self._tokens + 1
        tiles = np.arange(picture.rows * picture.columns).reshape(picture.rows, 1, picture.columns, 1) + 1
        within = np.arange(side * side).reshape(1, side, 1, side)
        whole = (tiles * per_tile + within).reshape(picture.rows * side, picture.columns * side)
        return without_margins(whole, picture.size)


class BoundedAnyresForm(AnyresForm):
    """LLaVA-OneVision: as LLaVA-NeXT; rows with more patches than those of some tiles shrink between neighbours.

    transformers sees several pictures of a prompt in another way, which is not one of these.
    """

    most_pictures = 1

    def __init__(self, directory: Path, model: dict[str, Any], tokenizer: Tokenizer | None) -> None:
        super().__init__(directory, model, tokenizer)
        self._most_tiles: Final[int] = model["image_most_tiles"]
        fields, expected = _fields(directory / _PROCESSOR_FILE), f"anyres_max_{self._most_tiles}"
        if fields.values.get("vision_aspect_ratio", "anyres_max_9") != expected:
            fields.refuse("vision_aspect_ratio", f"{expected}, as config.json says")
        _check_tokens(fields, "num_image_tokens", fields.integer("num_image_tokens", self._tokens), self._tokens)

    def tiles(self, picture: Picture) -> Tiles:
        """Returns the whole picture, then its tiles.

        Raises:
            InputError: it is beyond a bound, or so narrow that no row or column of tokens is left.
        """
        tiles = super().tiles(picture)
        kept = self._kept(tiles)
        if kept.size and 0 in self._size(kept):
            height, width = picture.pixels.shape[:2]
            raise InputError(f"a picture of {width} x {height} pixels has no row or column of tokens left: cut it")
        return tiles

    def parts(self, picture: Tiles) -> list[PicturePart]:
        """Returns the picture as one part."""
        kept = self._kept(picture)
        size = self._size(kept)
        if size == kept.shape:
            return super().parts(picture)
        corners, shares = between_neighbours(kept, size)
        rows, columns = size
        order, weights = np.zeros((rows, columns + 1, 4), np.int32), np.zeros((rows, columns + 1, 4), np.float32)
        order[:, :columns], weights[:, :columns] = corners, shares
        order[:, columns], weights[:, columns, 0] = self._tokens, 1
        whole = np.repeat(np.arange(self._tokens, dtype=np.int32)[:, None], 4, 1)
        alone = np.repeat(np.array([[1, 0, 0, 0]], np.float32), self._tokens, 0)
        order = np.concatenate([whole, order.reshape(-1, 4)])
        return [PicturePart(picture.pixels, len(order), order, np.concatenate([alone, weights.reshape(-1, 4)]))]

    def around(self, picture: TiledPicture) -> str:
        """Returns the tokens of the picture."""
        rows, columns = self._size(self._kept(picture))
        return self.mark * (self._tokens + rows * (columns + 1))

    def _size(self, kept: np.ndarray) -> tuple[int, int]:
        """Returns the rows and columns of tokens of so many patches."""
        rows, columns = kept.shape
        ratio = math.sqrt(rows * columns / (self._most_tiles * self._patches**2))
        return (int(rows // ratio), int(columns // ratio)) if ratio > _SHRINKS_ABOVE else (rows, columns)


def between_neighbours(places: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Returns four of ``places`` [rows, columns] for each of fewer places, and their weights (bilinear, f32).

    Both are [rows, columns, 4] of ``size``; the middle of the first place is that of torch's interpolation.

    >>> corners, weights = between_neighbours(np.arange(6).reshape(2, 3), (1, 2))
    >>> corners.tolist()
    [[[0, 1, 3, 4], [1, 2, 4, 5]]]
    >>> weights.tolist()
    [[[0.375, 0.125, 0.375, 0.125], [0.125, 0.375, 0.125, 0.375]]]
    """
    (above, below, down), (left, right, along) = (
        _neighbours(count, fewer) for count, fewer in zip(places.shape, size, strict=True)
    )
    corners = [places[np.ix_(row, column)] for row in (above, below) for column in (left, right)]
    weights = [np.outer(row, column) for row in (1 - down, down) for column in (1 - along, along)]
    return np.stack(corners, -1), np.stack(weights, -1)


def _neighbours(count: int, fewer: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the places before and behind each of fewer ones, and how far it is from the one before, 0 to 1."""
    scale = np.float32(count) / np.float32(fewer)
    at = np.maximum((np.arange(fewer, dtype=np.float32) + np.float32(0.5)) * scale - np.float32(0.5), 0)
    before = at.astype(np.int64)
    return before, np.minimum(before + 1, count - 1), at - before.astype(np.float32)


def without_margins(canvas: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Returns the part of a canvas [rows, columns] that a picture of ``size`` (height, width) covers.

    >>> without_margins(np.arange(16).reshape(4, 4), (2, 5)).tolist()
    [[4, 5, 6, 7], [8, 9, 10, 11]]
    """
    (rows, columns), (height, width) = canvas.shape, size
    if width / height > columns / rows:
        margin = (rows - int(round(height * (columns / width), 7))) // 2
        return canvas[margin : rows - margin]
    margin = (columns - int(round(width * (rows / height), 7))) // 2
    return canvas[:, margin : columns - margin]


class RowsForm(PictureForm):
    """Pixtral and Mistral 3: a picture's tokens row by row, with a mark behind each row, and another one at the end."""

    def __init__(self, directory: Path, model: dict[str, Any], tokenizer: Tokenizer | None) -> None:
        super().__init__(directory, model, tokenizer)
        (patch, _), merge = model["vision"]["patch"], model["vision"]["merge"]
        fields = _fields(directory / _PROCESSOR_FILE)
        for name, expected in (("patch_size", patch), ("spatial_merge_size", merge)):
            if fields.has(name) and fields.integer(name) != expected:
                fields.refuse(name, f"{expected}, as config.json says")
        most = min(self._tokens, model.get("max_sequence", self._tokens))
        self._side: Final[int] = patch * merge
        self._preprocess: Final = BoxPreprocessor.load(directory, self._side, most_tokens=most)
        self.mark = _mark_of(tokenizer, model["image_token"], "[IMG]")
        self._break = str(fields.values.get("image_break_token", "[IMG_BREAK]"))
        self._end = str(fields.values.get("image_end_token", "[IMG_END]"))
        for mark in (self._break, self._end):
            if tokenizer is not None and tokenizer.added_id(mark) is None:
                raise InputError(f"{tokenizer.path}: it lacks the token {mark}, which ends rows of pictures")

    def tiles(self, picture: Picture) -> Tiles:
        """Returns a picture as one tile."""
        return self._preprocess(picture)

    def side(self) -> None:
        """Returns nothing: the size depends on the picture."""

    def count(self, shape: tuple[int, ...]) -> int:
        """Returns the number of tokens of a picture [3, height, width]."""
        return shape[1] // self._side * (shape[2] // self._side)

    def parts(self, picture: Tiles) -> list[PicturePart]:
        """Returns the picture as one part, with the marks between its rows."""
        _, _, height, width = picture.pixels.shape
        rows, columns = height // self._side, width // self._side
        order = np.full((rows, columns + 1), -1, np.int32)
        order[:, :columns] = np.arange(rows * columns).reshape(rows, columns)
        return [PicturePart(picture.pixels, rows * columns, order.ravel()[:-1])]

    def around(self, picture: TiledPicture) -> str:
        """Returns rows of tokens, each with its mark."""
        _, _, height, width = picture.pixels.shape
        row = self.mark * (width // self._side)
        return self._break.join([row] * (height // self._side)) + self._end


class DynamicForm(PictureForm):
    """Qwen2-VL and its kin: a picture is one tile, with as many tokens as its size gives it, and the bundle takes."""

    def __init__(self, directory: Path, model: dict[str, Any], tokenizer: Tokenizer | None) -> None:
        super().__init__(directory, model, tokenizer)
        most = min(self._tokens, model.get("max_sequence", self._tokens))
        self._preprocess: Final = GridPreprocessor.load(directory, most_tokens=most)
        self.mark = _mark_of(tokenizer, model["image_token"], "<|image_pad|>")
        (patch, _), merge = model["vision"]["patch"], model["vision"]["merge"]
        if (self._preprocess.patch, self._preprocess.merge) != (patch, merge):
            raise ConfigError(
                f"{directory / 'preprocessor_config.json'}: fields 'patch_size' and 'merge_size': expected {patch} and "
                f"{merge}, as config.json says; found {self._preprocess.patch} and {self._preprocess.merge}: copy the "
                "model's own file, and export again"
            )
        self._side: Final[int] = patch * merge

    def tiles(self, picture: Picture) -> Tiles:
        """Returns a picture as one tile."""
        return self._preprocess(picture)

    def side(self) -> None:
        """Returns nothing: the size depends on the picture."""

    def count(self, shape: tuple[int, ...]) -> int:
        """Returns the number of squares of patches of a picture [3, height, width]."""
        return shape[1] // self._side * (shape[2] // self._side)

    def around(self, picture: TiledPicture) -> str:
        """Returns the tokens of the picture."""
        return self.mark * self.count(picture.pixels.shape[1:])


PICTURE_FORMS: Final[dict[str, type[PictureForm]]] = {
    "grid": GridForm,
    "plain": PlainForm,
    "enclosed": EnclosedForm,
    "framed": FramedForm,
    "dynamic": DynamicForm,
    "anyres": AnyresForm,
    "anyres_max": BoundedAnyresForm,
    "rows": RowsForm,
}
"""Forms by their name in the description of a bundle."""


def _mark_of(tokenizer: Tokenizer | None, token_id: int, default: str) -> str:
    """Returns the text of the placeholder token."""
    if tokenizer is None:
        return default
    mark = tokenizer.added_text(token_id)
    if mark is None:
        raise InputError(
            f"{tokenizer.path}: the token {token_id} is an ordinary one, in config.json it stands for pictures: the "
            "file is another model's"
        )
    return mark


def _fields(path: Path) -> ConfigFields:
    return config_fields(str(path), _REMEDY) if path.exists() else ConfigFields({}, str(path))


def _check_patches(directory: Path, model: dict[str, Any], expected: int) -> None:
    """Checks that the processor's settings of LLaVA and its kin have as many tokens per tile as the model."""
    fields, vision = _fields(directory / _PROCESSOR_FILE), model["vision"]
    if fields.has("patch_size"):
        height, width = (
            side // fields.integer("patch_size", patch)
            for side, patch in zip(vision["image"], vision["patch"], strict=True)
        )
        strategy = fields.values.get("vision_feature_select_strategy")
        tokens = height * width + fields.integer("num_additional_image_tokens", 0, minimum=0)
        _check_tokens(fields, "patch_size", tokens - (strategy == "default"), expected)


def _check_tokens(fields: ConfigFields, name: str, tokens: int, expected: int) -> None:
    """Checks that the processor's settings have as many tokens per tile as the model."""
    if tokens != expected:
        raise ConfigError(
            f"{fields.where}: field '{name}': expected {expected}, the tokens of a tile; found {tokens}"
            if name.startswith("image_")
            else f"{fields.where}: field '{name}' and those beside it give {tokens} tokens of a picture; expected "
            f"{expected}, as config.json says: copy the model's own file, and export again"
        )
