"""Pictures: image files, and the pixels that models take."""

import importlib
from typing import TYPE_CHECKING, Any

from tapeline.images._limits import DEFAULT_IMAGE_LIMITS, ImageLimits

if TYPE_CHECKING:
    from tapeline.images._picture import Picture
    from tapeline.images._preprocessor import ImagePreprocessor, TilePreprocessor, Tiles
    from tapeline.images._reading import read_image

__all__ = [
    "DEFAULT_IMAGE_LIMITS",
    "ImageLimits",
    "ImagePreprocessor",
    "Picture",
    "TilePreprocessor",
    "Tiles",
    "read_image",
]

_MODULES = {
    "ImagePreprocessor": "_preprocessor",
    "Picture": "_picture",
    "TilePreprocessor": "_preprocessor",
    "Tiles": "_preprocessor",
    "read_image": "_reading",
}


def __getattr__(name: str) -> Any:
    """Imports what needs Pillow when it is first asked for."""
    if name in _MODULES:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
