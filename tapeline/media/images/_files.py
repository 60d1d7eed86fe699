"""Image files as pictures; Pillow is loaded when the first one is read."""

import os

from lang_core import load_extra
from tapeline.media.images._limits import DEFAULT_IMAGE_LIMITS, ImageLimits
from tapeline.media.images._picture import Picture


def read_image(
    source: str | os.PathLike[str] | bytes, limits: ImageLimits = DEFAULT_IMAGE_LIMITS, *, name: str | None = None
) -> Picture:
    """Reads an image file as transformers' ``load_image`` does.

    The picture is turned as its EXIF orientation says, then converted to RGB: alpha is dropped, values of 16 bits are
    cut to 255, palettes are looked up. Of several frames or pages the first is read.

    Args:
        source: the file, or its bytes.
        limits: bounds of the file.
        name: name for messages; by default the path.

    Raises:
        InputError: it cannot be read, has an unknown format, is damaged, cut off, or exceeds a bound.
        MissingPackageError: Pillow is not installed.
    """
    reading = load_extra("tapeline.media.images._reading", "images", "reading an image")
    return reading.read_image(source, limits, name=name)
