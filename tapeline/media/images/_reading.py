"""Reads image files as RGB pixels."""

import io
import os
import stat
import struct
import threading
import warnings
import zlib
from typing import BinaryIO, Final

import numpy as np
from PIL import Image, ImageOps

from lang_core import InputError
from tapeline.media.images._limits import DEFAULT_IMAGE_LIMITS, ImageLimits
from tapeline.media.images._picture import Picture

_FORMATS: Final = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
_NEW_SCAN: Final = b"\xff\xda"  # within a scan, 255 is followed by 0
_COPY: Final = "copy it again, or convert it anew"
# Pillow's decoders raise all of these on damaged data.
_DAMAGE: Final = (
    OSError,
    ValueError,
    SyntaxError,
    TypeError,
    LookupError,
    ArithmeticError,
    EOFError,
    AttributeError,
    RuntimeError,
    struct.error,
    zlib.error,
)
# One picture is decoded at a time: that bounds memory, and filters of warnings are of the whole process.
_ONE_AT_A_TIME: Final = threading.Lock()


def read_image(
    source: str | os.PathLike[str] | bytes, limits: ImageLimits = DEFAULT_IMAGE_LIMITS, *, name: str | None = None
) -> Picture:
    """See ``_files.read_image``."""
    if isinstance(source, bytes):
        return _read(io.BytesIO(source), len(source), limits, name or "image")
    title = name or str(source)
    try:
        with open(source, "rb", opener=_open_at_once) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise InputError(f"{title}: not a regular file; expected an image file")
            return _read(file, status.st_size, limits, title)
    except OSError as error:
        raise InputError(f"{title}: cannot be read: {error.strerror}") from None


def _open_at_once(path: str, flags: int) -> int:
    """Opens a file, and a pipe that nobody writes without waiting."""
    return os.open(path, flags | os.O_NONBLOCK)


def _read(file: BinaryIO, size: int, limits: ImageLimits, name: str) -> Picture:
    if size > limits.max_bytes:
        raise InputError(f"{name}: {size:,} bytes, expected at most {limits.max_bytes:,}: make it smaller")
    data = file.read(limits.max_bytes)
    with _ONE_AT_A_TIME, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # bounds and damage are errors here, and nothing else is wrong
        return _decoded(data, limits, name)


def _decoded(data: bytes, limits: ImageLimits, name: str) -> Picture:
    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as picture:
            _check_header(picture, data, limits, name)
            converted = ImageOps.exif_transpose(picture).convert("RGB")
            return Picture(np.asarray(converted), _transparent(converted))
    except Image.UnidentifiedImageError:
        raise InputError(
            f"{name}: no image that is known (it begins with {data[:8]!r}): expected one of {', '.join(_FORMATS)}"
        ) from None
    except Image.DecompressionBombError:
        raise InputError(f"{name}: far more than {limits.max_pixels:,} pixels: make it smaller") from None
    except _DAMAGE as error:
        raise InputError(f"{name}: damaged or cut off ({str(error)[:200]}): {_COPY}") from None


def _transparent(converted: Image.Image) -> tuple[int, int, int] | None:
    colour = converted.info.get("transparency")
    return colour if isinstance(colour, tuple) and len(colour) == len(converted.getbands()) else None


def _check_header(picture: Image.Image, data: bytes, limits: ImageLimits, name: str) -> None:
    width, height = picture.size
    if width * height > limits.max_pixels:
        raise InputError(
            f"{name}: {width:,} x {height:,} pixels, expected at most {limits.max_pixels:,} in all: make it smaller"
        )
    if picture.format == "JPEG" and data.count(_NEW_SCAN) > limits.max_scans:
        raise InputError(
            f"{name}: {data.count(_NEW_SCAN):,} scans in a JPEG file, expected at most {limits.max_scans:,}: "
            "convert it anew"
        )
