"""Pictures: image files, and the pixels that models take. Pillow is loaded when a file is read or a picture resized."""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from tapeline.media.images._files import read_image
    from tapeline.media.images._limits import DEFAULT_IMAGE_LIMITS, ImageLimits
    from tapeline.media.images._picture import Picture
    from tapeline.media.images._preprocessor import (
        BoxPreprocessor,
        CanvasPreprocessor,
        GridPreprocessor,
        ImagePreprocessor,
        PinpointPreprocessor,
        TilePreprocessor,
        Tiles,
    )
    from tapeline.media.images._settings import PREPROCESSOR_FILE

export_lazily(__name__)
