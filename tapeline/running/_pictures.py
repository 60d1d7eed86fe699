"""Images for bundles with entry points that take pixels."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from compile_hlo.directions import Signature
from lang_core import InputError, checked_choices
from runtime import Session
from tapeline.bundle import Bundle
from tapeline.media.images import DEFAULT_IMAGE_LIMITS, ImageLimits, ImagePreprocessor, Picture, read_image
from tapeline.runners import padded_call
from tapeline.running._labels import Labels

ImageSource = str | os.PathLike[str] | bytes | np.ndarray | Picture
"""Path of an image file, the bytes of one, pixels u8 [height, width, 3], or a picture that was read."""

PIXELS: Final = "pixel_values"
"""Name of the argument that takes pictures."""

_LOGITS: Final = "logits"
# Entry points and results that have one vector per picture, the best first.
_VECTORS: Final = (("encode_image", "image_embeds"), ("forward", "pooler_output"))


def picture_of(image: ImageSource, limits: ImageLimits = DEFAULT_IMAGE_LIMITS) -> Picture:
    """Returns a picture.

    Raises:
        InputError: a file cannot be read, is not an image or exceeds a bound, or an array is not an image.
    """
    if isinstance(image, Picture):
        return image
    if isinstance(image, np.ndarray):
        return Picture(image)
    return read_image(image, limits)


def pixel_values(
    directory: Path, shape: Sequence[int], images: Sequence[ImageSource], limits: ImageLimits = DEFAULT_IMAGE_LIMITS
) -> np.ndarray:
    """Returns pixels f32 [images, 3, height, width] of pictures, as a bundle's image processor makes them.

    Args:
        directory: the bundle, with ``preprocessor_config.json``.
        shape: channels, height and width that the bundle takes.
        images: the pictures.
        limits: bounds of each.

    Raises:
        InputError: a picture cannot be read.
        ConfigError: the settings are missing, of another kind, or give pictures of another size.
    """
    return _processed(ImagePreprocessor.load(directory, limits), directory, shape, images)


def _processed(
    process: ImagePreprocessor, directory: Path, shape: Sequence[int], images: Sequence[ImageSource]
) -> np.ndarray:
    pixels = [process(picture_of(image, process.limits)) for image in images]
    for array in pixels:
        if array.shape != tuple(shape):
            raise InputError(
                f"{directory}: its preprocessor_config.json makes pixels {list(array.shape)}, the bundle takes "
                f"{list(shape)}: the file is another model's"
            )
    return np.stack(pixels)


class ImageEmbedder:
    """Bundle of a vision model, in a session: one vector per picture."""

    def __init__(self, bundle: Bundle, session: Session) -> None:
        """Checks that the bundle embeds pictures.

        Raises:
            InputError: it does not.
        """
        point, self._result = _embedding_point(bundle)
        self._batch, *self._shape = point.arguments[0].spec.shape
        self._directory: Final = bundle.path
        self._function: Final = session.function(point.name)

    def __call__(self, images: Sequence[ImageSource], limits: ImageLimits = DEFAULT_IMAGE_LIMITS) -> np.ndarray:
        """Returns one row f32 [D] for each picture; B of them are in memory at a time.

        Raises:
            InputError: there are none, or as for ``pixel_values``.
        """
        if not images:
            raise InputError("give a picture")
        process = ImagePreprocessor.load(self._directory, limits)
        parts = (images[start : start + self._batch] for start in range(0, len(images), self._batch))
        return np.concatenate([self._embedded(process, part) for part in parts])

    def _embedded(self, process: ImagePreprocessor, images: Sequence[ImageSource]) -> np.ndarray:
        pixels = _processed(process, self._directory, self._shape, images)
        return padded_call(self._function, pixels, self._batch, self._result)


class ImageClassifier:
    """Bundle of a classifier of pictures, in a session.

    Attributes:
        labels: names of the classes.
    """

    def __init__(self, bundle: Bundle, session: Session) -> None:
        """Checks that the bundle classifies pictures.

        Raises:
            InputError: it does not.
            ConfigError: its config.json is damaged.
        """
        if not classifies_pictures(bundle):
            raise InputError(f"{bundle.path} classifies no pictures: export a vision model ForImageClassification")
        point = next(point for point in bundle.config.entry_points if point.name == "forward")
        self._batch, *self._shape = point.arguments[0].spec.shape
        self._result: Final = [result.name for result in point.results].index(_LOGITS)
        self._directory: Final = bundle.path
        self._function: Final = session.function(point.name)
        self._labels: Final = Labels.read(bundle, point.results[self._result].spec.shape[-1])
        self.labels: Final = self._labels.names

    @checked_choices
    def __call__(
        self, images: Sequence[ImageSource], limits: ImageLimits = DEFAULT_IMAGE_LIMITS, *, raw: bool = False
    ) -> np.ndarray:
        """Returns the scores f32 [images, labels]; logits if ``raw``.

        Raises:
            InputError: there are no images, or as for ``pixel_values``.
        """
        if not images:
            raise InputError("give a picture")
        process = ImagePreprocessor.load(self._directory, limits)
        parts = [images[start : start + self._batch] for start in range(0, len(images), self._batch)]
        pixels = (_processed(process, self._directory, self._shape, part) for part in parts)
        logits = np.concatenate([padded_call(self._function, part, self._batch, self._result) for part in pixels])
        return logits if raw else self._labels.scores(logits)


def classifies_pictures(bundle: Bundle) -> bool:
    """Returns whether a bundle gives scores of the classes of a picture."""
    points = [point for point in bundle.config.entry_points if point.name == "forward"]
    return any(
        [argument.name for argument in point.arguments] == [PIXELS]
        and any(result.name == _LOGITS and len(result.spec.shape) == 2 for result in point.results)
        for point in points
    )


def _embedding_point(bundle: Bundle) -> tuple[Signature, int]:
    points = {point.name: point for point in bundle.config.entry_points}
    for name, wanted in _VECTORS:
        point = points.get(name)
        results = [] if point is None else [result.name for result in point.results]
        if point is not None and wanted in results and [argument.name for argument in point.arguments] == [PIXELS]:
            return point, results.index(wanted)
    raise InputError(
        f"{bundle.path} embeds no pictures (its entry points are {', '.join(points)}): export a vision model with "
        f"{' or '.join(f'{wanted} of {name}' for name, wanted in _VECTORS)}"
    )
