"""Resizing by Pillow; ``_pixels.py`` loads this module when a picture is first resized."""

import numpy as np
from PIL import Image


def pillow_resized(picture: np.ndarray, width: int, height: int, resample: int) -> np.ndarray:
    """Returns a picture u8 [height, width, 3] in another size, by the filter of this number."""
    return np.asarray(Image.fromarray(picture).resize((width, height), resample=Image.Resampling(resample)))
