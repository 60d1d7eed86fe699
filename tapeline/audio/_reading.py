"""Reads WAV and FLAC files as mono samples."""

import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
import soundfile

from lang_core import InputError
from tapeline.audio._limits import DEFAULT_LIMITS, AudioLimits
from tapeline.audio._resampling import resample
from tapeline.audio._riff import missing_bytes, with_known_size

_MAGIC: Final = 12  # bytes that tell the format
_ENCODINGS: Final = ("PCM_S8", "PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW")
_UNKNOWN_FRAMES: Final = 2**62  # libsndfile's count of a FLAC file that does not say its length is greater
_DENSEST: Final = 64  # samples per byte of a file, beyond which its header is not believed
_BLOCK: Final = 2**16  # samples of each channel that are decoded at once
_LOUDEST: Final = 2.0**24  # of files with floats: some hold integers as such; sums of these stay finite
_COPY: Final = "copy it again, or convert it anew"


def read_audio(
    source: Path | bytes, rate: int, limits: AudioLimits = DEFAULT_LIMITS, *, name: str | None = None
) -> np.ndarray:
    """See ``_files.read_audio``."""
    if isinstance(source, bytes):
        return _read(io.BytesIO(source), len(source), rate, limits, name or "audio")
    title = name or str(source)
    try:
        with open(source, "rb", opener=_open_at_once) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise InputError(f"{title}: not a regular file; expected a WAV or FLAC file")
            return _read(file, status.st_size, rate, limits, title)
    except OSError as error:
        raise InputError(f"{title}: cannot be read: {error.strerror}") from None


def _open_at_once(path: str, flags: int) -> int:
    """Opens a file, and a pipe that nobody writes without waiting."""
    return os.open(path, flags | os.O_NONBLOCK)


class _Stream(soundfile.SoundFile):
    """File that is read from its start to its end; the library would seek at each block, which needs a known length."""

    def seekable(self) -> bool:
        """Returns False."""
        return False


def _read(file: BinaryIO, size: int, rate: int, limits: AudioLimits, name: str) -> np.ndarray:
    if size > limits.max_bytes:
        raise InputError(f"{name}: {size:,} bytes, expected at most {limits.max_bytes:,}: give it in pieces")
    file = _check_format(file, size, name)
    try:
        with _Stream(file) as sound:
            _check_header(sound, limits, name)
            own_rate, expected = sound.samplerate, sound.frames
            samples = _collected(_mono_blocks(sound, limits, name), expected, size)
    except soundfile.LibsndfileError as error:
        raise InputError(f"{name}: damaged or cut off ({error.error_string.strip(' .')}): {_COPY}") from None
    if expected < _UNKNOWN_FRAMES and len(samples) < expected:
        raise InputError(f"{name}: cut off: {len(samples):,} of {expected:,} samples are there: {_COPY}")
    if not len(samples):
        raise InputError(f"{name}: has no samples: give a file with sound")
    return resample(samples, own_rate, rate)


def _check_format(file: BinaryIO, size: int, name: str) -> BinaryIO:
    """Checks that a file begins as one of the formats does, and that a WAV file has the samples that it declares.

    Returns the file to read: in memory, of a WAV file that a program wrote into a pipe and that says no size.
    """
    head = file.read(_MAGIC)
    is_wav = head[:4] == b"RIFF" and head[8:] == b"WAVE"
    if not is_wav and head[:4] != b"fLaC":
        raise InputError(f"{name}: neither a WAV nor a FLAC file (it begins with {head!r}): convert it to one of these")
    missing = missing_bytes(file, size) if is_wav else 0
    if missing:
        raise InputError(f"{name}: cut off: its last {missing:,} bytes of samples are missing: {_COPY}")
    content = with_known_size(file, size) if is_wav else None
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
        _check_duration(sound.frames / sound.samplerate, limits, name)


def _check_duration(seconds: float, limits: AudioLimits, name: str) -> None:
    if seconds > limits.max_seconds:
        raise InputError(
            f"{name}: lasts {seconds:,.1f} seconds or more, expected at most {limits.max_seconds:,.1f}: give it in "
            "pieces"
        )


def _collected(blocks: Iterator[np.ndarray], expected: int, size: int) -> np.ndarray:
    """Returns the samples of all blocks; without a second copy where the header is to be believed of their number."""
    if expected > _DENSEST * size:
        return np.concatenate([np.zeros(0, np.float32), *blocks])
    samples, count = np.empty(expected, np.float32), 0
    for block in blocks:
        kept = block[: expected - count]
        samples[count : count + len(kept)] = kept
        count += len(kept)
    return samples[:count]


def _mono_blocks(sound: soundfile.SoundFile, limits: AudioLimits, name: str) -> Iterator[np.ndarray]:
    """Yields the mean of the channels block by block, to the end of the data whatever the header says of it."""
    count = 0
    while True:
        block = sound.read(_BLOCK, dtype="float32", always_2d=True)
        if not len(block):
            return
        fits = (np.abs(block) <= _LOUDEST).all(1)
        if not fits.all():
            place = (count + int(np.argmin(fits))) / sound.samplerate
            raise InputError(
                f"{name}: the sample at {place:.3f} seconds is NaN, infinite or beyond {_LOUDEST:,.0f}: convert it anew"
            )
        count += len(block)
        _check_duration(count / sound.samplerate, limits, name)
        yield block[:, 0] if block.shape[1] == 1 else block.mean(axis=1)
