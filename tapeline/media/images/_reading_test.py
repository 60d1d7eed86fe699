import io
import os
import struct
import time
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from lang_core import InputError
from tapeline.media.images import ImageLimits, read_image

_PIXELS = np.random.default_rng(5).integers(0, 256, (24, 37, 3), dtype=np.uint8)
_FORMS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")


def _encoded(form: str = "PNG", pixels: np.ndarray = _PIXELS, **options: object) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, form, **options)
    return file.getvalue()


def test_paths_and_bytes_give_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(_encoded())
    for source in (tmp_path / "a.png", _encoded()):
        np.testing.assert_array_equal(read_image(source).pixels, _PIXELS)


@pytest.mark.parametrize("form", _FORMS)
def test_files_that_are_cut_off_are_refused(form: str) -> None:
    data = _encoded(form)
    assert read_image(data).pixels.shape == _PIXELS.shape
    for length in (12, len(data) // 3, len(data) * 2 // 3):
        with pytest.raises(InputError, match=r"cut off|no image that is known"):
            read_image(data[:length])


def _png(width: int, height: int, data: bytes = b"") -> bytes:
    """A PNG file that says a size, with few bytes of pixels."""
    chunks = (b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0), b"IDAT" + zlib.compress(data), b"IEND")
    body = b"".join(struct.pack(">I", len(row) - 4) + row + struct.pack(">I", zlib.crc32(row)) for row in chunks)
    return b"\x89PNG\r\n\x1a\n" + body


@pytest.mark.parametrize(("width", "height"), [(8193, 8193), (2**31 - 1, 1), (2**31 - 1, 2**31 - 1), (1, 2**28)])
def test_sizes_are_bounded_before_anything_is_decoded(width: int, height: int) -> None:
    tracemalloc.start()
    start = time.process_time()
    with pytest.raises(InputError, match="pixels"):
        read_image(_png(width, height, b"\0" * 999))
    assert time.process_time() - start < 5
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()


def test_limits_are_those_that_are_given() -> None:
    with pytest.raises(InputError, match=r"37 x 24 pixels, expected at most 887 in all: make it smaller"):
        read_image(_encoded(), ImageLimits(max_pixels=887))
    assert read_image(_encoded(), ImageLimits(max_pixels=888)).pixels.shape == (24, 37, 3)
    with pytest.raises(InputError, match=r"bytes, expected at most 99: make it smaller"):
        read_image(_encoded(), ImageLimits(max_bytes=99))


def test_jpeg_files_of_many_scans_are_refused() -> None:
    with pytest.raises(InputError, match="10 scans in a JPEG file, expected at most 9"):
        read_image(_encoded("JPEG", progressive=True), ImageLimits(max_scans=9))


def test_what_is_no_picture_is_refused(tmp_path: Path) -> None:
    for data in (b"", b"\0", b"hello" * 99, b"%PDF-1.7" + bytes(99), b"\x89PNG\r\n\x1a\n", b"GIF89a"):
        with pytest.raises(InputError, match=r"image: (no image that is known|damaged)"):
            read_image(data)
    os.mkfifo(tmp_path / "pipe")
    for name, message in (
        ("pipe", "not a regular file"),
        ("none", "cannot be read: No such file"),
        ("", "directory|reg"),
    ):
        with pytest.raises(InputError, match=message):
            read_image(tmp_path / name)


def test_messages_name_the_picture() -> None:
    with pytest.raises(InputError, match=r"^image 2: no image"):
        read_image(b"x", name="image 2")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    form=st.sampled_from(_FORMS),
    changes=st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 255)), max_size=12),
    length=st.integers(0, 4000),
)
def test_damage_is_one_error_or_a_picture(form: str, changes: list[tuple[int, int]], length: int) -> None:
    data = bytearray(_encoded(form))
    for place, value in changes:
        data[place % len(data)] = value
    try:
        picture = read_image(bytes(data[: max(length, 16)]), ImageLimits(max_pixels=2**20))
    except InputError:
        return
    assert picture.pixels.dtype == np.uint8
    assert picture.pixels.ndim == 3
