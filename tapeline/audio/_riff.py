"""Chunks of a WAV file, as far as they tell a file that was cut off; libsndfile reads such a file as a shorter one."""

import struct
from typing import BinaryIO, Final

_HEADER: Final = struct.Struct("<4sI")
_FORM: Final = 12  # bytes of "RIFF", the size and "WAVE"
_UNKNOWN: Final = (0, 2**32 - 1)  # sizes that a program writes which cannot go back to the header


def missing_bytes(file: BinaryIO, size: int) -> int:
    """Returns how many bytes of samples a WAV file declares and lacks; 0 of a whole one, and where it says none.

    Args:
        file: the file, which is read from its start.
        size: bytes that it has.
    """
    position = _FORM
    while position + _HEADER.size <= size:
        file.seek(position)
        name, declared = _HEADER.unpack(file.read(_HEADER.size))
        position += _HEADER.size
        if name == b"data":
            return 0 if declared in _UNKNOWN else max(0, position + declared - size)
        position += declared + declared % 2
    return 0
