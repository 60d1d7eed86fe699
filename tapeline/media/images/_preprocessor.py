"""Pictures as pixels of a model, by the settings of its image processor."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lang_core import ConfigError
from tapeline.media.images._limits import DEFAULT_IMAGE_LIMITS, ImageLimits
from tapeline.media.images._picture import Picture
from tapeline.media.images._pixels import cropped, normalized, resized
from tapeline.media.images._settings import PREPROCESSOR_FILE, ImageSettings
from tapeline.media.images._sizes import (
    Size,
    best_canvas,
    best_pinpoint,
    bounded_size,
    fitted_size,
    grid_size,
    tiled_size,
)


@dataclass(frozen=True, slots=True)
class ImagePreprocessor:
    """Image processor of ViT, SigLIP and CLIP: one array of pixels per picture.

    Attributes:
        settings: steps that are taken.
        limits: bounds of the sizes between.
    """

    settings: ImageSettings
    limits: ImageLimits = DEFAULT_IMAGE_LIMITS

    @classmethod
    def load(cls, directory: Path, limits: ImageLimits = DEFAULT_IMAGE_LIMITS) -> "ImagePreprocessor":
        """Reads the settings of a checkpoint or a bundle.

        Raises:
            ConfigError: there are none, they cut pictures into tiles, or as for ``ImageSettings``.
        """
        settings = ImageSettings.load(directory)
        if settings.tile is not None or settings.canvas is not None:
            raise ConfigError(
                f"{directory / PREPROCESSOR_FILE}: cuts pictures into tiles, and the model takes one picture: expected "
                "settings of another kind"
            )
        if settings.grid is not None or settings.box is not None or settings.pinpoints is not None:
            raise ConfigError(
                f"{directory / PREPROCESSOR_FILE}: gives pictures of any size, and the model takes one size: expected "
                "settings of another kind"
            )
        return cls(settings, limits)

    def __call__(self, picture: Picture) -> np.ndarray:
        """Returns the pixels f32 [3, height, width] of a picture.

        Raises:
            InputError: it is too narrow.
        """
        settings, pixels = self.settings, _seen(picture, self.settings)
        if settings.resize is not None:
            pixels = resized(pixels, settings.resize(_size(pixels)), settings.resample, self.limits)
        if settings.crop is not None:
            pixels = cropped(pixels, settings.crop)
        return normalized(pixels, settings)


@dataclass(frozen=True, slots=True)
class Tiles:
    """A picture as tiles, row by row, then the whole of it.

    Attributes:
        pixels: f32 [tiles, 3, side, side].
        rows: rows of tiles; 0 of a picture that is one tile.
        columns: columns of tiles; 0 of a picture that is one tile.
        size: height and width of the picture as it was; None where nothing depends on it.
    """

    pixels: np.ndarray
    rows: int
    columns: int
    size: Size | None = None


@dataclass(frozen=True, slots=True)
class TilePreprocessor:
    """Image processor of SmolVLM and Idefics 3: a picture is cut into square tiles, and is one of them as a whole.

    Attributes:
        settings: steps that are taken.
        side: side of a tile.
        limits: bounds of the sizes between.
    """

    settings: ImageSettings
    side: int
    limits: ImageLimits = DEFAULT_IMAGE_LIMITS

    @classmethod
    def load(cls, directory: Path, limits: ImageLimits = DEFAULT_IMAGE_LIMITS) -> "TilePreprocessor":
        """Reads the settings of a checkpoint or a bundle.

        Raises:
            ConfigError: there are none, they do not cut pictures into tiles, or as for ``ImageSettings``.
        """
        settings = ImageSettings.load(directory)
        if settings.tile is None:
            raise ConfigError(
                f"{directory / PREPROCESSOR_FILE}: gives one picture, and the model takes tiles: expected settings of "
                "SmolVLMImageProcessor or Idefics3ImageProcessor"
            )
        return cls(settings, settings.tile, limits)

    def __call__(self, picture: Picture) -> Tiles:
        """Returns the tiles of a picture.

        Raises:
            InputError: it is too narrow.
        """
        pixels = _seen(picture, self.settings)
        if self.settings.resize is not None:
            pixels = self._resized(pixels, *self.settings.resize(_size(pixels)))
        if self.settings.splits:
            parts, rows, columns = self._cut(pixels)
        else:
            parts, rows, columns = [self._resized(pixels, self.side, self.side)], 0, 0
        return Tiles(np.stack([normalized(part, self.settings) for part in parts]), rows, columns)

    def _cut(self, pixels: np.ndarray) -> tuple[list[np.ndarray], int, int]:
        side, (height, width) = self.side, tiled_size(_size(pixels), self.side)
        pixels = self._resized(pixels, height, width)
        rows, columns = height // side, width // side
        if rows == columns == 1:
            return [pixels], 0, 0
        parts = [
            pixels[row * side : (row + 1) * side, column * side : (column + 1) * side]
            for row in range(rows)
            for column in range(columns)
        ]
        return [*parts, self._resized(pixels, side, side)], rows, columns

    def _resized(self, pixels: np.ndarray, height: int, width: int) -> np.ndarray:
        return resized(pixels, (height, width), self.settings.resample, self.limits)


@dataclass(frozen=True, slots=True)
class CanvasPreprocessor:
    """Image processor of InternVL: a picture is resized to a grid of tiles of nearly its shape, and is one tile too.

    Attributes:
        settings: steps that are taken.
        limits: bounds of the sizes between.
    """

    settings: ImageSettings
    limits: ImageLimits = DEFAULT_IMAGE_LIMITS

    @classmethod
    def load(cls, directory: Path, limits: ImageLimits = DEFAULT_IMAGE_LIMITS) -> "CanvasPreprocessor":
        """Reads the settings of a checkpoint or a bundle.

        Raises:
            ConfigError: there are none, they do not cut pictures into such tiles, or as for ``ImageSettings``.
        """
        settings = ImageSettings.load(directory)
        if settings.canvas is None or settings.resize is None:
            raise ConfigError(
                f"{directory / PREPROCESSOR_FILE}: the model takes tiles of a canvas: expected settings of "
                "GotOcr2ImageProcessor with do_resize"
            )
        return cls(settings, limits)

    def __call__(self, picture: Picture) -> Tiles:
        """Returns the tiles of a picture, row by row, then the whole of it if there are several.

        Raises:
            InputError: it is too narrow.
        """
        settings, pixels = self.settings, _seen(picture, self.settings)
        assert settings.resize is not None
        assert settings.canvas is not None
        size = settings.resize(_size(pixels))
        columns, rows = best_canvas(_size(pixels), size, *settings.canvas)
        whole = resized(pixels, (rows * size[0], columns * size[1]), settings.resample, self.limits)
        parts = [
            whole[row * size[0] : (row + 1) * size[0], column * size[1] : (column + 1) * size[1]]
            for row in range(rows)
            for column in range(columns)
        ]
        if len(parts) > 1:
            parts.append(resized(pixels, size, settings.resample, self.limits))
        return Tiles(np.stack([normalized(part, settings) for part in parts]), rows, columns)


@dataclass(frozen=True, slots=True)
class GridPreprocessor:
    """Image processor of Qwen2-VL and its kin: a picture keeps nearly its size and shape, in whole squares of patches.

    Attributes:
        settings: steps that are taken.
        patch: side of a patch.
        merge: side of the squares of patches that are one token.
        pixels: fewest and most pixels of a picture.
        limits: bounds of the sizes between.
    """

    settings: ImageSettings
    patch: int
    merge: int
    pixels: tuple[int, int]
    limits: ImageLimits = DEFAULT_IMAGE_LIMITS

    @classmethod
    def load(
        cls, directory: Path, limits: ImageLimits = DEFAULT_IMAGE_LIMITS, *, most_tokens: int | None = None
    ) -> "GridPreprocessor":
        """Reads the settings of a checkpoint or a bundle.

        Args:
            directory: holds preprocessor_config.json.
            limits: bounds of the sizes between.
            most_tokens: maximum number of tokens of a picture, if that is less than the settings allow.

        Raises:
            ConfigError: there are none, they give pictures of one size, or as for ``ImageSettings``.
        """
        settings = ImageSettings.load(directory)
        if settings.grid is None or settings.pixels is None:
            raise ConfigError(
                f"{directory / PREPROCESSOR_FILE}: the model takes pictures of any size: expected settings of "
                "Qwen2VLImageProcessor"
            )
        pixels, square = settings.pixels, math.prod(settings.grid) ** 2
        if most_tokens is not None:
            pixels = min(pixels[0], most_tokens * square), min(pixels[1], most_tokens * square)
        return cls(settings, *settings.grid, pixels, limits)

    def __call__(self, picture: Picture) -> Tiles:
        """Returns the pixels of a picture, as one tile.

        Raises:
            InputError: it is too narrow.
        """
        settings, pixels = self.settings, _seen(picture, self.settings)
        size = grid_size(_size(pixels), self.patch * self.merge, *self.pixels)
        return Tiles(normalized(resized(pixels, size, settings.resample, self.limits), settings)[None], 0, 0)


@dataclass(frozen=True, slots=True)
class BoxPreprocessor:
    """Image processor of Pixtral: a picture keeps its shape, within a box, with sides rounded up to whole tokens.

    Attributes:
        settings: steps that are taken.
        factor: side of a token, in pixels.
        box: greatest height and width, before they are rounded up.
        limits: bounds of the sizes between.
    """

    settings: ImageSettings
    factor: int
    box: Size
    limits: ImageLimits = DEFAULT_IMAGE_LIMITS

    @classmethod
    def load(
        cls, directory: Path, factor: int, limits: ImageLimits = DEFAULT_IMAGE_LIMITS, *, most_tokens: int | None = None
    ) -> "BoxPreprocessor":
        """Reads the settings of a checkpoint or a bundle.

        Args:
            directory: holds preprocessor_config.json.
            factor: side of a token, in pixels.
            limits: bounds of the sizes between.
            most_tokens: maximum number of tokens of a picture: the box is made no greater than their square.

        Raises:
            ConfigError: there are none, they give pictures of one size, or as for ``ImageSettings``.
        """
        settings = ImageSettings.load(directory)
        if settings.box is None:
            raise ConfigError(
                f"{directory / PREPROCESSOR_FILE}: the model takes pictures of any size, row by row: expected settings "
                "of PixtralImageProcessor"
            )
        height, width = settings.box
        side = max(height, width) if most_tokens is None else math.isqrt(most_tokens) * factor
        return cls(settings, factor, (min(height, side), min(width, side)), limits)

    def __call__(self, picture: Picture) -> Tiles:
        """Returns the pixels of a picture, as one tile.

        Raises:
            InputError: it is too narrow.
        """
        settings, pixels = self.settings, _seen(picture, self.settings)
        size = bounded_size(_size(pixels), self.factor, self.box)
        return Tiles(normalized(resized(pixels, size, settings.resample, self.limits), settings)[None], 0, 0)


@dataclass(frozen=True, slots=True)
class PinpointPreprocessor:
    """Image processor of LLaVA-NeXT and LLaVA-OneVision: a picture is resized into a canvas of tiles, with margins.

    Attributes:
        settings: steps that are taken.
        canvases: sizes of the canvases.
        side: side of a tile.
        limits: bounds of the sizes between.
    """

    settings: ImageSettings
    canvases: tuple[Size, ...]
    side: int
    limits: ImageLimits = DEFAULT_IMAGE_LIMITS

    @classmethod
    def load(cls, directory: Path, limits: ImageLimits = DEFAULT_IMAGE_LIMITS) -> "PinpointPreprocessor":
        """Reads the settings of a checkpoint or a bundle.

        Raises:
            ConfigError: there are none, they have no such canvases, or as for ``ImageSettings``.
        """
        settings = ImageSettings.load(directory)
        if settings.pinpoints is None or settings.crop is None:
            raise ConfigError(
                f"{directory / PREPROCESSOR_FILE}: the model takes tiles of several canvases: expected settings of "
                "LlavaNextImageProcessor or LlavaOnevisionImageProcessor"
            )
        return cls(settings, settings.pinpoints, settings.crop[0], limits)

    def __call__(self, picture: Picture) -> Tiles:
        """Returns the whole picture as one tile, then the tiles of its canvas, row by row.

        Raises:
            InputError: it is too narrow.
        """
        settings, side = self.settings, self.side
        pixels = _seen(picture, settings)
        canvas = best_pinpoint(_size(pixels), self.canvases)
        fitted = fitted_size(_size(pixels), canvas)
        before = tuple((whole - part) // 2 for whole, part in zip(canvas, fitted, strict=True))
        padded = np.zeros((*canvas, pixels.shape[2]), np.uint8)
        padded[before[0] : before[0] + fitted[0], before[1] : before[1] + fitted[1]] = resized(
            pixels, fitted, settings.resample, self.limits
        )
        rows, columns = canvas[0] // side, canvas[1] // side
        parts = [resized(pixels, (side, side), settings.resample, self.limits)]
        parts += [
            padded[row * side : (row + 1) * side, column * side : (column + 1) * side]
            for row in range(rows)
            for column in range(columns)
        ]
        return Tiles(np.stack([normalized(part, settings) for part in parts]), rows, columns, _size(pixels))


def _size(pixels: np.ndarray) -> tuple[int, int]:
    return pixels.shape[0], pixels.shape[1]


def _seen(picture: Picture, settings: ImageSettings) -> np.ndarray:
    return picture.on_white() if settings.on_white else picture.pixels
