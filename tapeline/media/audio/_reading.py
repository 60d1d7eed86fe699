"""Reads WAV and FLAC files as mono samples."""

import io
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
import soundfile

from lang_core import InputError
from tapeline.media.audio._limits import DEFAULT_LIMITS, AudioLimits
from tapeline.media.audio._resampling import resampled_blocks
from tapeline.media.audio._riff import missing_bytes, with_known_size

_MAGIC: Final = 12  # bytes that tell the format
_ENCODINGS: Final = ("PCM_S8", "PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW")
_UNKNOWN_FRAMES: Final = 2**62  # libsndfile's count of a FLAC file that does not say its length is greater
_BLOCK: Final = 2**16  # samples of each channel that are decoded at once
_LOUDEST: Final = 2.0**24  # of files with floats: some hold integers as such; sums of these stay finite
_COPY: Final = "copy it again, or convert it anew"


def read_audio(
    source: Path | bytes, rate: int, limits: AudioLimits = DEFAULT_LIMITS, *, name: str | None = None
) -> np.ndarray:
    """See ``_files.read_audio``."""
    blocks = [*read_blocks(source, rate, limits, name=name)]
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)


def read_blocks(
    source: Path | bytes,
    rate: int,
    limits: AudioLimits = DEFAULT_LIMITS,
    *,
    name: str | None = None,
    check: Callable[[], object] | None = None,
) -> Iterator[np.ndarray]:
    """See ``_files.read_blocks``."""
    check = check or _go_on
    if isinstance(source, bytes):
        yield from _read(io.BytesIO(source), len(source), rate, limits, name or "audio", check)
        return
    title = name or str(source)
    try:
        with open(source, "rb", opener=_open_at_once) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise InputError(f"{title}: not a regular file; expected a WAV or FLAC file")
            yield from _read(file, status.st_size, rate, limits, title, check)
    except OSError as error:
        raise InputError(f"{title}: cannot be read: {error.strerror}") from None


def _go_on() -> None:
    """Lets the reading go on."""


def _open_at_once(path: str, flags: int) -> int:
    """Opens a file, and a pipe that nobody writes without waiting."""
    return os.open(path, flags | os.O_NONBLOCK)


class _Stream(soundfile.SoundFile):
    """File that is read from its start to its end; the library would seek at each block, which needs a known length."""

    def seekable(self) -> bool:
        """Returns False."""
        return False


def _read(
    file: BinaryIO, size: int, rate: int, limits: AudioLimits, name: str, check: Callable[[], object]
) -> Iterator[np.ndarray]:
    if size > limits.max_bytes:
        raise InputError(f"{name}: {size:,} bytes, expected at most {limits.max_bytes:,}: give it in pieces")
    file = _check_format(file, size, name)
    try:
        with _Stream(file) as sound:
            _check_header(sound, limits, name)
            yield from resampled_blocks(_mono_blocks(sound, limits, name, check), sound.samplerate, rate)
    except soundfile.LibsndfileError as error:
        raise InputError(f"{name}: damaged or cut off ({error.error_string.strip(' .')}): {_COPY}") from None


def _check_format(file: BinaryIO, size: int, name: str) -> BinaryIO:
    """Checks that a file begins as one of the formats does, and that a WAV file has the samples that it declares.

    Returns the file to read: in memory, for a WAV file from a pipe, without a size in its header.
    """
    head = file.read(_MAGIC)
    is_wav = head[:4] == b"RIFF" and head[8:] == b"WAVE"
    if not is_wav and head[:4] != b"fLaC":
        raise InputError(f"{name}: neither a WAV nor a FLAC file (it begins with {head!r}): convert it to one of these")
    missing = missing_bytes(file, size, name) if is_wav else 0
    if missing:
        raise InputError(f"{name}: cut off: its last {missing:,} bytes of samples are missing: {_COPY}")
    content = with_known_size(file, size, name) if is_wav else None
    file.seek(0)
    return file if content is None else io.BytesIO(content)


def _check_header(sound: soundfile.SoundFile, limits: AudioLimits, name: str) -> None:
    if sound.subtype not in _ENCODINGS:
        raise InputError(f"{name}: samples encoded as {sound.subtype}; expected one of {', '.join(_ENCODINGS)}")
    if sound.channels > limits.max_channels:
        raise InputError(f"{name}: {sound.channels} channels, expected at most {limits.max_channels}: mix it down")
    if not limits.min_rate <= sound.samplerate <= limits.max_rate:
        raise InputError(
            f"{name}: {sound.samplerate:,} samples per second, expected {limits.min_rate:,} to {limits.max_rate:,}"
        )
    if sound.frames < _UNKNOWN_FRAMES:
        _check_amount(sound.frames, sound, limits, name)


def _check_amount(frames: int, sound: soundfile.SoundFile, limits: AudioLimits, name: str) -> None:
    """Checks the duration and the number of samples of some frames."""
    seconds, samples = frames / sound.samplerate, frames * sound.channels
    if samples > limits.max_samples:
        raise InputError(
            f"{name}: {samples:,} samples or more, expected at most {limits.max_samples:,}: give it in pieces, at a "
            "lower rate or with fewer channels"
        )
    if seconds > limits.max_seconds:
        raise InputError(
            f"{name}: lasts {seconds:,.1f} seconds or more, expected at most {limits.max_seconds:,.1f}: give it in "
            "pieces"
        )


def _mono_blocks(
    sound: soundfile.SoundFile, limits: AudioLimits, name: str, check: Callable[[], object]
) -> Iterator[np.ndarray]:
    """Yields the mean of the channels block by block, as far as the header says and at most to the end of the data."""
    count, expected = 0, sound.frames
    while True:
        check()
        block = sound.read(_BLOCK, dtype="float32", always_2d=True)[: expected - count]
        if not len(block):
            break
        fits = (np.abs(block) <= _LOUDEST).all(1)
        if not fits.all():
            place = (count + int(np.argmin(fits))) / sound.samplerate
            raise InputError(
                f"{name}: the sample at {place:.3f} seconds is NaN, infinite or beyond {_LOUDEST:,.0f}: convert it anew"
            )
        count += len(block)
        _check_amount(count, sound, limits, name)
        yield block[:, 0] if block.shape[1] == 1 else block.mean(axis=1)
    if expected < _UNKNOWN_FRAMES and count < expected:
        raise InputError(f"{name}: cut off: {count:,} of {expected:,} samples are there: {_COPY}")
    if not count:
        raise InputError(f"{name}: has no samples: give a file with sound")
