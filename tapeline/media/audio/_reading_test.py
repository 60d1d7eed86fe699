import io
import os
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lang_core import InputError
from tapeline.media.audio import AudioLimits, read_audio, read_blocks

_RATE = 16_000
_SAMPLES = (np.random.default_rng(3).standard_normal(30_000) * 0.1).astype(np.float32)
_SAMPLES_AT = 44  # bytes of a plain WAV header


def _encoded(
    form: str = "WAV",
    encoding: str = "PCM_16",
    *,
    channels: int = 1,
    rate: int = _RATE,
    samples: np.ndarray = _SAMPLES,
) -> bytearray:
    file = io.BytesIO()
    soundfile.write(file, np.repeat(samples[:, None], channels, 1), rate, format=form, subtype=encoding)
    return bytearray(file.getvalue())


@pytest.mark.parametrize(
    ("form", "encoding", "step"),
    [
        ("WAV", "PCM_U8", 2**-7),
        ("WAV", "PCM_16", 2**-15),
        ("WAV", "PCM_24", 2**-23),
        ("WAV", "PCM_32", 2**-24),
        ("WAV", "FLOAT", 0),
        ("WAV", "DOUBLE", 0),
        ("WAV", "ULAW", 2**-5),
        ("WAV", "ALAW", 2**-5),
        ("WAVEX", "PCM_16", 2**-15),
        ("FLAC", "PCM_S8", 2**-7),
        ("FLAC", "PCM_16", 2**-15),
        ("FLAC", "PCM_24", 2**-23),
    ],
)
def test_every_encoding_is_read(form: str, encoding: str, step: float, tmp_path: Path) -> None:
    (tmp_path / "sound").write_bytes(_encoded(form, encoding))
    samples = read_audio(tmp_path / "sound", _RATE)
    assert (samples.dtype, samples.shape) == (np.float32, _SAMPLES.shape)
    assert np.abs(samples - _SAMPLES).max() <= step
    np.testing.assert_array_equal(read_audio(bytes(_encoded(form, encoding)), _RATE), samples)


def test_channels_are_averaged() -> None:
    file = io.BytesIO()
    soundfile.write(file, np.stack([_SAMPLES, -0.5 * _SAMPLES, 0 * _SAMPLES], 1), _RATE, format="WAV", subtype="FLOAT")
    np.testing.assert_allclose(read_audio(file.getvalue(), _RATE), _SAMPLES / 6, atol=1e-7)


def test_the_rate_is_changed() -> None:
    assert read_audio(bytes(_encoded(rate=48_000)), _RATE).shape == (10_000,)


_UNKNOWN = [0, 0x7FFFF000, 0x7FFFFFFF - 44, 0x7FFFFFFF - 36, 0x7FFFFFFF, 0x80000000, 2**32 - 37, 2**32 - 2, 2**32 - 1]
_BEHIND = [
    b"LIST\x04\x00\x00\x00abcd",
    b"id3 \x03\x00\x00\x00abc\x00",
    b"LIST\x04\x00\x00\x00abcdid3 \x03\x00\x00\x00abc",
]


@pytest.mark.parametrize("size", _UNKNOWN)
@pytest.mark.parametrize("form", [0, 2**32 - 1, None])
@pytest.mark.parametrize("encoding", ["PCM_16", "FLOAT", "PCM_24"])
def test_a_wav_file_of_unknown_size_is_read_to_its_end(
    size: int, form: int | None, encoding: str, tmp_path: Path
) -> None:
    """Reads what programs write into a pipe: they cannot go back to the header, and leave a size of their own there."""
    file = _encoded(encoding=encoding)
    whole = read_audio(bytes(file), _RATE)
    place = file.index(b"data") + 4
    file[place : place + 4] = struct.pack("<I", size)
    if form is not None:
        file[4:8] = struct.pack("<I", form)
    np.testing.assert_array_equal(read_audio(bytes(file), _RATE), whole)
    (tmp_path / "a.wav").write_bytes(file)
    np.testing.assert_array_equal(read_audio(tmp_path / "a.wav", _RATE), whole)


@pytest.mark.parametrize("size", _UNKNOWN)
@pytest.mark.parametrize("more", _BEHIND)
@pytest.mark.parametrize("encoding", ["PCM_16", "PCM_U8"])
def test_chunks_behind_samples_of_unknown_size_are_no_samples(size: int, more: bytes, encoding: str) -> None:
    file = _encoded(encoding=encoding)
    whole = read_audio(bytes(file), _RATE)
    place = file.index(b"data") + 4
    file[place : place + 4] = struct.pack("<I", size)
    np.testing.assert_array_equal(read_audio(bytes(file) + more, _RATE), whole)
    cut = read_audio(bytes(file) + more[:-2], _RATE)  # no whole chunk, so it can be anything
    assert len(cut) > len(whole)
    with pytest.raises(InputError, match="audio: has no samples"):
        read_audio(bytes(file)[: place + 4] + more, _RATE)


def test_names_of_chunks_in_samples_take_no_time_and_are_samples() -> None:
    file = bytearray(_encoded(samples=_SAMPLES[:0]))
    place = file.index(b"data") + 4
    file[place : place + 4] = struct.pack("<I", 0xFFFFFFFF)
    samples = b"LIST\x00\x00\x00\x00" * 60_000 + b"\x01\x02"
    assert len(read_audio(bytes(file) + samples, _RATE)) == len(samples) // 2


def test_a_wav_file_without_samples_and_with_further_chunks_has_none() -> None:
    file = _encoded(samples=_SAMPLES[:0])
    for more in (b"", b"LIST\x04\x00\x00\x00abcd", b"id3 \x03\x00\x00\x00abc\x00", b"id3 \x03\x00\x00\x00abc"):
        with pytest.raises(InputError, match="audio: has no samples"):
            read_audio(bytes(file) + more, _RATE)


def test_a_flac_file_of_unknown_length_is_read_to_its_end() -> None:
    file = _encoded("FLAC")
    file[21] &= 0xF0
    file[22:26] = bytes(4)
    assert read_audio(bytes(file), _RATE).shape == _SAMPLES.shape
    with pytest.raises(
        InputError, match=r"audio: lasts 1\.9 seconds or more, expected at most 1\.0: give it in pieces"
    ):
        read_audio(bytes(file), _RATE, AudioLimits(max_seconds=1))


def _changed(change: Callable[[bytearray], object], form: str = "WAV") -> bytes:
    file = _encoded(form)
    change(file)
    return bytes(file)


def _lying_length(file: bytearray) -> None:
    file[22:26] = bytes([0, 1, 0, 0])


_BAD = {
    "empty": (b"", r"neither a WAV nor a FLAC file \(it begins with b''\)"),
    "text": (b"hello, world" * 9, "neither a WAV nor a FLAC file .* convert it to one of these"),
    "picture": (b"\x89PNG\r\n\x1a\n" + bytes(99), "neither a WAV nor a FLAC file"),
    "mp3": (b"ID3\x04" + bytes(99), "neither a WAV nor a FLAC file"),
    "aiff": (bytes(_encoded("AIFF")), "neither a WAV nor a FLAC file"),
    "ogg": (bytes(_encoded("OGG", "VORBIS")), "neither a WAV nor a FLAC file"),
    "wav header": (bytes(_encoded()[:30]), "damaged or cut off .*No 'data' chunk"),
    "wav cut off": (bytes(_encoded()[:-1000]), "cut off: its last 1,000 bytes of samples are missing"),
    "flac header": (bytes(_encoded("FLAC")[:30]), "damaged or cut off"),
    "flac cut off": (bytes(_encoded("FLAC")[:20_000]), "damaged or cut off .*lost sync.*: copy it again, or convert"),
    "flac one bit": (_changed(lambda file: file.__setitem__(20_000, file[20_000] ^ 1), "FLAC"), "damaged or cut off"),
    "flac zeros": (_changed(lambda file: file.__setitem__(slice(5000, 5050), bytes(50)), "FLAC"), "damaged or cut off"),
    "flac too few": (_changed(_lying_length, "FLAC"), "cut off"),
    "no samples": (bytes(_encoded(samples=_SAMPLES[:0])), "has no samples: give a file with sound"),
    "channels": (bytes(_encoded(channels=1000, samples=_SAMPLES[:9])), "1000 channels, expected at most 8: mix"),
    "no channels": (_changed(lambda file: file.__setitem__(slice(22, 24), bytes(2))), "damaged or cut off"),
    "slow": (bytes(_encoded(rate=999)), "999 samples per second, expected 1,000 to 384,000"),
    "fast": (bytes(_encoded(rate=2_000_000)), "2,000,000 samples per second, expected 1,000 to 384,000"),
    "rate 0": (_changed(lambda file: file.__setitem__(slice(24, 28), bytes(4))), "damaged or cut off"),
    "encoding": (bytes(_encoded(encoding="IMA_ADPCM")), "samples encoded as IMA_ADPCM; expected one of PCM_S8, PCM_U8"),
    "gsm": (bytes(_encoded(encoding="GSM610")), "samples encoded as GSM610; expected one of"),
    "nan": (
        bytes(_encoded(encoding="FLOAT", samples=np.where(np.arange(30_000) == 16_800, np.nan, _SAMPLES))),
        r"the sample at 1\.050 seconds is NaN, infinite or beyond 16,777,216: convert it anew",
    ),
    "infinite": (
        bytes(_encoded(encoding="DOUBLE", samples=np.where(np.arange(30_000) == 8, np.inf, _SAMPLES))),
        r"the sample at 0\.001 seconds is NaN, infinite or beyond",
    ),
    "loud": (
        bytes(_encoded(encoding="FLOAT", channels=2, samples=np.where(np.arange(30_000) == 1600, 3e38, _SAMPLES))),
        r"the sample at 0\.100 seconds is NaN, infinite or beyond",
    ),
}


@pytest.mark.parametrize("name", _BAD)
def test_bad_files_are_refused(name: str, tmp_path: Path) -> None:
    content, message = _BAD[name]
    with pytest.raises(InputError, match=rf"^audio: {message}"):
        read_audio(content, _RATE)
    path = tmp_path / "given.wav"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"given\.wav: {message}"):
        read_audio(path, _RATE)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.wav: cannot be read: No such file"):
        read_audio(tmp_path / "absent.wav", _RATE)
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        read_audio(tmp_path, _RATE)
    with pytest.raises(InputError, match="/dev/zero: not a regular file"):
        read_audio(Path("/dev/zero"), _RATE)
    os.mkfifo(tmp_path / "pipe.wav")
    with pytest.raises(InputError, match=r"pipe\.wav: not a regular file; expected a WAV or FLAC file"):
        read_audio(tmp_path / "pipe.wav", _RATE)


def test_bounds_hold_before_anything_is_decoded(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="speech: 60,044 bytes, expected at most 60,000: give it in pieces"):
        read_audio(bytes(_encoded()), _RATE, AudioLimits(max_bytes=60_000), name="speech")
    path = tmp_path / "day.wav"
    header = _encoded()[:_SAMPLES_AT]
    seconds = 60_000
    header[40:44] = struct.pack("<I", 2 * _RATE * seconds)
    with path.open("wb") as file:  # a hole: nearly two GiB that take no room
        file.write(header)
        file.truncate(_SAMPLES_AT + 2 * _RATE * seconds)
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r"day\.wav: 1,920,000,044 bytes, expected at most 1,073,741,824"):
            read_audio(path, _RATE)
        with pytest.raises(InputError, match=r"lasts 60,000\.0 seconds or more, expected at most 7,200\.0"):
            read_audio(path, _RATE, AudioLimits(max_bytes=2**31))
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    form=st.sampled_from(["WAV", "FLAC"]),
    place=st.integers(0, 2000),
    garbage=st.binary(min_size=1, max_size=12),
    kept=st.integers(0, 3000),
)
def test_damage_is_read_or_refused(form: str, place: int, garbage: bytes, kept: int) -> None:
    file = _encoded(form, samples=_SAMPLES[:1000])
    file[place : place + len(garbage)] = garbage
    try:
        samples = read_audio(bytes(file[:kept]), _RATE)
    except InputError:
        return
    assert samples.ndim == 1
    assert np.isfinite(samples).all()


def test_decoded_samples_are_bounded() -> None:
    """Bounds the samples of all channels, whether the header says their number or not: each takes time, at any rate."""
    limits = AudioLimits(max_samples=100_000)
    with pytest.raises(InputError, match="audio: 120,000 samples or more, expected at most 100,000: give it in pieces"):
        read_audio(bytes(_encoded(channels=4)), _RATE, limits)
    file = _encoded("FLAC", samples=np.resize(_SAMPLES, 200_000))
    file[21] &= 0xF0
    file[22:26] = bytes(4)
    with pytest.raises(
        InputError, match=r"audio: 1\d\d,\d+ samples or more, expected at most 100,000: give it in pieces"
    ):
        read_audio(bytes(file), _RATE, limits)


@pytest.mark.parametrize("rate", [383_999, 384_000, 44_101, 1_009])
def test_odd_rates_take_no_more_memory_than_others(rate: int) -> None:
    """The filter of a rational ratio has as many phases as the greater number: 383,999 of 16,000 Hz."""
    file = bytes(_encoded(encoding="PCM_U8", rate=rate, samples=np.resize(_SAMPLES, rate)))
    tracemalloc.start()
    try:
        samples = read_audio(file, _RATE)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert samples.shape == (_RATE,)
    assert peak < 16 * 2**20


def test_a_file_is_never_decoded_as_a_whole() -> None:
    """Two minutes of silence are a small FLAC file; its samples at its own rate are 23 MB."""
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", 48_000, 1, "PCM_16", format="FLAC") as sound:
        for _ in range(120):
            sound.write(np.zeros(48_000, np.int16))
    count, checks = 0, list[None]()
    tracemalloc.start()
    try:
        for block in read_blocks(file.getvalue(), _RATE, check=lambda: checks.append(None)):
            count += len(block)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 120 * _RATE
    assert len(checks) > 120 * 48_000 // 2**16
    assert peak < 8 * 2**20


def test_what_check_raises_ends_the_reading() -> None:
    def check() -> None:
        raise TimeoutError("late")

    with pytest.raises(TimeoutError, match="late"):
        next(read_blocks(bytes(_encoded()), _RATE, check=check))


@pytest.mark.parametrize("size", [8, 0])
def test_chunks_are_bounded(size: int) -> None:
    """Each takes a read: 24 MB of them took eight seconds, and a file with a hole minutes."""
    before = b"RIFF\0\0\0\0WAVE"
    with pytest.raises(InputError, match="audio: more than 262,144 chunks: convert it anew"):
        read_audio(before + b"abcd\0\0\0\0" * 300_000, _RATE)
    file = bytearray(_encoded(samples=_SAMPLES[:0]))
    place = file.index(b"data") + 4
    file[place : place + 4] = struct.pack("<I", 0xFFFFFFFF if size else 0)
    with pytest.raises(InputError, match="audio: more than 262,144 chunks: convert it anew"):
        read_audio(bytes(file) + b"LIST\0\0\0\0id3 \0\0\0\0" * 150_000, _RATE)
