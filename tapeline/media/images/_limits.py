"""Bounds of pictures that are read."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageLimits:
    """Bounds of an image file; its header is held to them before anything is decoded.

    Attributes:
        max_bytes: largest size of the file.
        max_pixels: maximum number of pixels of the image, and of the resized image.
        max_scans: most passes over the picture in a progressive JPEG file.
    """

    max_bytes: int = 2**26
    max_pixels: int = 2**26
    max_scans: int = 256


DEFAULT_IMAGE_LIMITS: Final = ImageLimits()
"""Bounds where none are given: 64 MiB, 67 million pixels."""
