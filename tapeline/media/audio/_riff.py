"""Chunks of a WAV file that libsndfile reads otherwise: of a file that was cut off, or written into a pipe."""

import struct
from typing import BinaryIO, Final

from lang_core import InputError

_HEADER: Final = struct.Struct("<4sI")
_SIZE: Final = struct.Struct("<I")
_MOST_CHUNKS: Final = 2**18  # that are looked at; files of programs have some ten
_FORM: Final = 12  # bytes of "RIFF", the size and "WAVE"
_LARGEST: Final = 2**32 - 1
# Programs that cannot go back to the header leave 0 there, or the largest size that they know of, often less the bytes
# of the header: 0x7FFFFFFF, 0x80000000 and 0xFFFFFFFF (ffmpeg, espeak, arecord), 0x7FFFF000 (sox).
_NEAR: Final = 2**16
_LIMITS: Final = (2**31, _LARGEST)
# Chunks that stand behind samples.
_BEHIND: Final = (
    *(b"LIST", b"id3 ", b"ID3 ", b"bext", b"cue ", b"smpl", b"inst", b"plst", b"iXML", b"axml", b"_PMX", b"fact"),
    *(b"PEAK", b"JUNK", b"junk", b"PAD ", b"FLLR", b"DISP", b"acid", b"note", b"labl", b"ltxt", b"cart", b"afsp"),
)


def missing_bytes(file: BinaryIO, size: int, name: str) -> int:
    """Returns how many bytes of samples a WAV file declares and lacks; 0 of a whole one, and if it says none.

    Args:
        file: the file, which is read from its start.
        size: bytes that it has.
        name: name for messages.

    Raises:
        InputError: the file has too many chunks.
    """
    samples = _data(file, size, name)
    if samples is None:
        return 0
    position, declared = samples
    return 0 if _is_unknown(declared) else max(0, position + declared - size)


def with_known_size(file: BinaryIO, size: int, name: str) -> bytes | None:
    """Returns the bytes of a WAV file with the size of its samples, if its header does not say it; None of any other.

    The samples go on to the end of the file, or to whole chunks that stand behind them. If such chunks follow the
    samples' header, the file lacks samples.

    Args:
        file: the file, which is read from its start.
        size: bytes that it has.
        name: name for messages.

    Raises:
        InputError: the file has too many chunks.
    """
    samples = _data(file, size, name)
    if samples is None or not _is_unknown(samples[1]) or samples[0] > size:
        return None
    start, declared = samples
    if not declared and _is_chunks(file, start, size, name):
        return None
    file.seek(0)
    content = bytearray(file.read(size))
    _SIZE.pack_into(content, start - _SIZE.size, _end(content, start, name) - start)
    return bytes(content)


def _is_unknown(declared: int) -> bool:
    return not declared or any(limit - _NEAR <= declared <= limit for limit in _LIMITS)


def _end(content: bytearray, start: int, name: str) -> int:
    """Returns the place at which the samples end: that of the first of the chunks behind them, or the file's end."""
    size, places, known = len(content), [len(content)], set[int]()
    count = 0
    for behind in _BEHIND:
        place = content.find(behind, start)
        while 0 <= place < places[-1]:
            count += 1
            passed: list[int] = []
            position = place
            while position + _HEADER.size <= size and position not in known:
                passed.append(position)
                _check_count(count + len(passed) + len(known), name)
                title, declared = _HEADER.unpack_from(content, position)
                position = position + _HEADER.size + declared + declared % 2 if _is_title(title) else size + 2
            known |= {*passed}  # so that no chunk is looked at twice, whatever a file holds
            if position in (size, size + 1):
                places.append(place)
                break
            place = content.find(behind, place + 1)
    return places[-1]


def _check_count(count: int, name: str) -> None:
    if count > _MOST_CHUNKS:
        raise InputError(f"{name}: more than {_MOST_CHUNKS:,} chunks: convert it anew")


def _data(file: BinaryIO, size: int, name: str) -> tuple[int, int] | None:
    """Returns the place of the samples, and the bytes that are declared of them; None without the chunk."""
    position, count = _FORM, 0
    while position + _HEADER.size <= size:
        count += 1
        _check_count(count, name)
        file.seek(position)
        title, declared = _HEADER.unpack(file.read(_HEADER.size))
        position += _HEADER.size
        if title == b"data":
            return position, declared
        position += declared + declared % 2
    return None


def _is_chunks(file: BinaryIO, position: int, size: int, name: str) -> bool:
    """Returns whether a file has whole chunks from a place to its end."""
    count = 0
    while position + _HEADER.size <= size:
        count += 1
        _check_count(count, name)
        file.seek(position)
        title, declared = _HEADER.unpack(file.read(_HEADER.size))
        if not _is_title(title):
            return False
        position += _HEADER.size + declared + declared % 2
    return position in (size, size + 1)


def _is_title(name: bytes) -> bool:
    return name.isascii() and name.decode("ascii").isprintable()
