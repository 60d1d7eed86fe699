"""Chunks of a WAV file that libsndfile reads otherwise: of a file that was cut off, or written into a pipe."""

import struct
from typing import BinaryIO, Final

_HEADER: Final = struct.Struct("<4sI")
_SIZE: Final = struct.Struct("<I")
_FORM: Final = 12  # bytes of "RIFF", the size and "WAVE"
_LARGEST: Final = 2**32 - 1
# Sizes that programs write which cannot go back to the header: ffmpeg's, those of sox and espeak, arecord's.
_UNKNOWN: Final = (_LARGEST, 0x7FFFF000, 0x7FFFFFFF, 0x80000000)


def missing_bytes(file: BinaryIO, size: int) -> int:
    """Returns how many bytes of samples a WAV file declares and lacks; 0 of a whole one, and where it says none.

    Args:
        file: the file, which is read from its start.
        size: bytes that it has.
    """
    samples = _data(file, size)
    if samples is None:
        return 0
    position, declared = samples
    return 0 if declared in _UNKNOWN else max(0, position + declared - size)


def with_known_size(file: BinaryIO, size: int) -> bytes | None:
    """Returns the bytes of a WAV file whose header says 0 bytes of samples and that has some; None of any other.

    libsndfile takes the 0 as it is. In the bytes it is the size that means an unknown one. If what follows the samples'
    header is whole chunks up to the end of the file, then there are no samples.

    Args:
        file: the file, which is read from its start.
        size: bytes that it has.
    """
    samples = _data(file, size)
    if samples is None or samples[1] or samples[0] >= size or _is_chunks(file, samples[0], size):
        return None
    file.seek(0)
    content = bytearray(file.read(size))
    _SIZE.pack_into(content, samples[0] - _SIZE.size, _LARGEST)
    return bytes(content)


def _data(file: BinaryIO, size: int) -> tuple[int, int] | None:
    """Returns the place of the samples, and the bytes that are declared of them; None without the chunk."""
    position = _FORM
    while position + _HEADER.size <= size:
        file.seek(position)
        name, declared = _HEADER.unpack(file.read(_HEADER.size))
        position += _HEADER.size
        if name == b"data":
            return position, declared
        position += declared + declared % 2
    return None


def _is_chunks(file: BinaryIO, position: int, size: int) -> bool:
    """Returns whether a file has whole chunks from a place to its end."""
    while position + _HEADER.size <= size:
        file.seek(position)
        name, declared = _HEADER.unpack(file.read(_HEADER.size))
        if not name.isascii() or not name.decode("ascii").isprintable():
            return False
        position += _HEADER.size + declared + declared % 2
    return position in (size, size + 1)
