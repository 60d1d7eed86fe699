"""Image files of every format that is read."""

import io
from random import Random

import numpy as np
from PIL import Image

from tapeline.media.images import ImageLimits, read_image
from tests.fuzz._target import Target

_LIMITS = ImageLimits(max_bytes=2**17, max_pixels=2**20, max_scans=16)
_FORMS = (("PNG", "RGBA"), ("PNG", "P"), ("PNG", "I;16"), ("JPEG", "RGB"), ("JPEG", "L"), ("GIF", "P"), ("BMP", "RGB"))


def _encoded(form: str, mode: str) -> bytes:
    pixels = (np.arange(12 * 10 * 3) % 251).astype(np.uint8).reshape(12, 10, 3)
    file = io.BytesIO()
    picture = Image.fromarray(pixels)
    picture = Image.fromarray(pixels[..., 0].astype(np.uint16) * 256) if mode == "I;16" else picture.convert(mode)
    picture.save(file, form)
    return file.getvalue()


def _seeds() -> list[bytes]:
    file = io.BytesIO()
    Image.new("RGB", (9, 7), (1, 2, 3)).save(file, "WEBP")
    progressive = io.BytesIO()
    Image.new("RGB", (16, 16), (1, 2, 3)).save(progressive, "JPEG", progressive=True)
    return [*(_encoded(form, mode) for form, mode in _FORMS), file.getvalue(), progressive.getvalue()]


def _mutate(data: bytes, draw: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.choice((1, 2, 4))):
        if len(changed) > 8:
            place = draw.randrange(min(len(changed), draw.choice((48, len(changed)))))
            changed[place] = draw.choice((0, 1, 127, 128, 255, draw.randrange(256)))
    return bytes(changed)


def _run(data: bytes) -> bool:
    read_image(data, _LIMITS)
    return True


TARGET = Target(seeds=_seeds, run=_run, mutate=_mutate)
