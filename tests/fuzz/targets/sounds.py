"""WAV and FLAC files: decoded and resampled in blocks."""

import io
import struct
from random import Random

import numpy as np
import soundfile

from tapeline.media.audio import AudioLimits, read_blocks
from tests.fuzz._target import Target

_LIMITS = AudioLimits(max_seconds=30, max_samples=2**22)
_NUMBERS = (0, 1, 2, 3, 8, 16, 24, 32, 44, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1000, 44_100, 383_999, 384_000, 0xFFFE)
_CHUNKS = (b"LIST\4\0\0\0abcd", b"id3 \0\0\0\0", b"fact\4\0\0\0\0\0\0\0", b"data", b"RIFF", b"WAVE", b"fmt ", b"fLaC")


def _encoded(form: str, encoding: str, channels: int, rate: int) -> bytes:
    file, samples = io.BytesIO(), np.sin(np.arange(300) / 9)[:, None] * np.ones(channels)
    soundfile.write(file, 0.5 * samples, rate, format=form, subtype=encoding)
    return file.getvalue()


def _seeds() -> list[bytes]:
    return [
        _encoded("WAV", "PCM_16", 1, 16_000),
        _encoded("WAV", "FLOAT", 2, 44_100),
        _encoded("WAV", "ULAW", 1, 8_000),
        _encoded("WAVEX", "PCM_24", 3, 383_999),
        _encoded("FLAC", "PCM_16", 2, 22_050),
        _encoded("FLAC", "PCM_24", 1, 96_000),
    ]


def _mutate(data: bytes, draw: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 4))):
        if len(changed) < 8:
            break
        place = draw.randrange(min(len(changed), draw.choice((60, len(changed)))) - 4)
        kind = draw.randrange(4)
        if kind == 0:
            changed[place:place] = draw.choice(_CHUNKS)
        elif kind == 1:
            struct.pack_into("<I", changed, place, draw.choice(_NUMBERS))
        elif kind == 2:
            changed[place] = draw.randrange(256)
        else:
            del changed[place : place + draw.choice((1, 2, 4, 8, 100))]
    return bytes(changed)


def _run(data: bytes) -> bool:
    samples = 0
    for block in read_blocks(data, 16_000, _LIMITS):
        if block.dtype != np.float32 or block.ndim != 1 or not np.isfinite(block).all():
            raise AssertionError(f"a block is {block.dtype}{block.shape}, or not finite")
        samples += len(block)
    return samples > 0


TARGET = Target(seeds=_seeds, run=_run, mutate=_mutate)
