"""Draw the pictures, and read the goldens of their pixels. No picture is stored."""

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.goldens.pictures.cases import Picture
from tests.goldens.weights import unit_values

DATA = Path(__file__).parent / "data"
GOLDENS = DATA / "pixels.json"
CLASSES = DATA / "classes.json"
_SEED = 20
_ORIENTATION = 0x0112
_BANDS = {"LA": 2, "RGB": 3, "YCbCr": 3, "LAB": 3, "RGBA": 4, "CMYK": 4}


def picture_bytes(name: str, picture: Picture) -> bytes:
    """The file of a picture; smooth shapes with noise, so that each filter has something to do."""
    first, *others = [_drawn(f"{name} {frame}", picture) for frame in range(picture.frames)]
    options = dict(picture.saved)
    if picture.orientation is not None:
        exif = Image.Exif()
        exif[_ORIENTATION] = picture.orientation
        options["exif"] = exif
    if picture.transparency is not None:
        options["transparency"] = picture.transparency
        if not isinstance(picture.transparency, bytes) and picture.mode != "P":
            first.paste(picture.transparency, (0, 0, picture.width // 2, picture.height // 2))
    if others:
        options |= {"save_all": True, "append_images": others}
    file = io.BytesIO()
    first.save(file, picture.form, **options)
    return file.getvalue()


def _drawn(name: str, picture: Picture) -> Image.Image:
    mode, shape = picture.mode, (picture.height, picture.width)
    if mode == "P":
        drawn = Image.fromarray(_values(name, shape) // 16)
        drawn.putpalette(_values(f"{name} palette", (16, 3)).tobytes())
        return drawn
    if mode == "1":
        return Image.fromarray(_values(name, shape)).convert("1")
    if mode == "I;16":
        return Image.fromarray(_values(name, shape).astype(np.uint16) * np.uint16(3))
    if mode == "I":
        return Image.fromarray(_values(name, shape).astype(np.int32) * 2 - 100)
    if mode == "F":
        return Image.fromarray(_values(name, shape).astype(np.float32) * np.float32(1.5) - 50)
    if mode == "L":
        return Image.fromarray(_values(name, shape))
    values = _values(name, (*shape, _BANDS[mode]))
    return Image.frombytes(mode, (picture.width, picture.height), values.tobytes())


def _values(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Values u8: a ramp over the picture, folded, and noise."""
    noise = unit_values(name, shape, _SEED)
    ramp = np.tensordot(np.array((5, 7, 60)[: len(shape)]), np.indices(shape), 1)
    return (np.abs((ramp % 448) - 224) + np.floor(noise * 15).astype(int) + 16).astype(np.uint8)


def picture_digest(values: np.ndarray) -> str:
    """Dtype, shape and sha256 of an array."""
    digest = hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()[:32]
    return f"{values.dtype}{list(values.shape)} {digest}"


def read_picture_goldens() -> dict[str, Any]:
    """Versions, saved settings, and per picture the digests of its pixels by processor."""
    return json.loads(GOLDENS.read_text())
