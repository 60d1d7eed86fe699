"""Steps from a picture to a model's pixels, each bit for bit that of transformers' processors for Pillow."""

import math

import numpy as np

from lang_core import InputError, load_extra
from tapeline.media.images._limits import ImageLimits
from tapeline.media.images._settings import ImageSettings
from tapeline.media.images._sizes import Size


def resized(picture: np.ndarray, size: Size, resample: int, limits: ImageLimits) -> np.ndarray:
    """Returns a picture u8 [height, width, 3] in another size.

    Raises:
        InputError: it is so narrow that a side would vanish, or that it would grow beyond a bound.
        MissingPackageError: Pillow is not installed.
    """
    (height, width), (old_height, old_width) = size, picture.shape[:2]
    # Pillow resizes rows before columns: between the two there are the new columns of all old rows.
    most = max(height * width, 0 if width == old_width else width * old_height)
    if min(size) < 1 or most > limits.max_pixels:
        raise InputError(
            f"picture of {old_width} x {old_height} pixels, to be resized to {width} x {height}: too narrow: cut it"
        )
    resizing = load_extra("tapeline.media.images._resizing", "images", "resizing an image")
    return resizing.pillow_resized(picture, width, height, resample)


def cropped(picture: np.ndarray, size: Size) -> np.ndarray:
    """Returns the middle of a picture, with zeros around it if it is smaller."""
    for axis, side in enumerate(size):
        old = picture.shape[axis]
        if side > old:
            before = math.ceil((side - old) / 2)
            around = [(0, 0)] * 3
            around[axis] = (before, side - old - before)
            picture = np.pad(picture, around)
        else:
            picture = picture.take(range((old - side) // 2, (old - side) // 2 + side), axis)
    return picture


def normalized(picture: np.ndarray, settings: ImageSettings) -> np.ndarray:
    """Returns the values f32 [3, height, width] of a picture: scaled, less the mean, divided by the deviation."""
    values = picture.astype(np.float32)
    if settings.scale is not None:
        values = (picture.astype(np.float64) * settings.scale).astype(np.float32)
    if settings.mean is not None:
        values = (values - np.array(settings.mean, np.float32)) / np.array(settings.std, np.float32)
    return np.ascontiguousarray(values.transpose(2, 0, 1))
