import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lang_core import ConfigError, InputError
from tapeline.media.audio import LogMel, LogMelWindows, _log_mel

_SETTINGS = {"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 128, "mel_filters": [[1.0]]}


def _written(directory: Path, name: str, fields: Any) -> Path:
    (directory / name).write_text(json.dumps(fields))
    return directory


def test_settings_are_read(tmp_path: Path) -> None:
    log_mel = LogMel.load(_written(tmp_path, "preprocessor_config.json", {**_SETTINGS, "chunk_length": 2}))
    assert log_mel == LogMel(mels=128, window=32_000)
    assert log_mel.frames == 200


def test_settings_in_a_field_of_a_processors_are_read(tmp_path: Path) -> None:
    _written(tmp_path, "processor_config.json", {"processor_class": "x", "feature_extractor": {"feature_size": 128}})
    assert LogMel.load(tmp_path) == LogMel(mels=128)
    _written(tmp_path, "preprocessor_config.json", {"feature_size": 80})
    assert LogMel.load(tmp_path) == LogMel()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"feature_extractor_type": "ViTFeatureExtractor"}, "expected one of WhisperFeatureExtractor.*; found 'ViT"),
        ({"feature_size": 0}, "field 'feature_size': expected an integer of at least 1; found 0"),
        ({"sampling_rate": "16000"}, "field 'sampling_rate': expected an integer"),
        ({"dither": 0.1}, "field 'dither': expected 0: noise would make every run another one; found 0.1"),
        ({"padding_value": "silence"}, "field 'padding_value': expected a finite number; found 'silence'"),
        ({"n_fft": 10**9}, "field 'n_fft': expected at most 8192; found 1000000000"),
        ({"feature_size": 10**9}, "field 'feature_size': expected at most 4096"),
        ({"chunk_length": 10**9}, "field 'chunk_length': expected at most 600"),
        ({"hop_length": 10**9}, "field 'hop_length': expected at most 8192"),
        ([], "expected a JSON object; found list"),
    ],
)
def test_bad_settings_are_refused(fields: Any, message: str, tmp_path: Path) -> None:
    _written(tmp_path, "preprocessor_config.json", fields)
    with pytest.raises(ConfigError, match=message):
        LogMel.load(tmp_path)


def test_settings_that_are_not_there_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file: it says how sound becomes features: copy it into the model's"):
        LogMel.load(tmp_path)


def test_louder_sound_has_the_same_shape_of_features() -> None:
    """Ten times the samples are two powers of ten more of power: half a unit after the scaling."""
    samples = np.random.default_rng(0).standard_normal(16_000).astype(np.float32)
    log_mel = LogMel(window=16_000)
    np.testing.assert_allclose(log_mel(10 * samples), log_mel(samples) + 0.5, atol=1e-5)


def test_frames_are_as_many_as_hops() -> None:
    log_mel = LogMel(window=1600)
    for length, frames in [(1, 10), (1600, 10), (1759, 10), (1760, 11), (16_001, 100)]:
        assert log_mel(np.ones(length, np.float32)).shape == (80, frames)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (np.zeros(0, np.float32), r"samples are float32\[0\]: expected one row of one or more floats, mono"),
        (np.zeros((2, 9), np.float32), r"samples are float32\[2, 9\]"),
        (np.zeros(9, np.int16), r"samples are int16\[9\]"),
        (np.array([0, 1, np.nan]), "sample 2 is NaN or infinite: give numbers, mostly -1 to 1"),
        (np.array([-np.inf, 1]), "sample 0 is NaN or infinite"),
    ],
)
def test_bad_samples_are_refused(samples: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        LogMel()(samples)


@pytest.mark.parametrize("kept", [2**15, 0])
@pytest.mark.parametrize("length", [1, 900, 2000, 70_000, 400_001])
def test_windows_are_parts_of_the_whole(kept: int, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit, in blocks of any size, whether the sound is read once or again, forwards or backwards."""
    monkeypatch.setattr(_log_mel, "_KEPT", kept)
    samples = np.random.default_rng(length).standard_normal(length).astype(np.float32)
    samples *= np.linspace(0.001, 1, length, dtype=np.float32)  # the loudest frame comes last
    log_mel = LogMel(mels=8, hop=30, width=101, window=3000)
    whole = log_mel(samples)
    reads: list[None] = []

    def read() -> list[np.ndarray]:
        reads.append(None)
        return np.split(samples, sorted({min(length, cut) for cut in (1, 40, 50_000, 390_000)}))

    windows = LogMelWindows(log_mel, read)
    assert (windows.samples, windows.frames) == (length, whole.shape[1])
    for start in (0, whole.shape[1] // 3, whole.shape[1] - 1, whole.shape[1] // 2):
        expected = whole[:, start : start + log_mel.frames]
        window = windows.window(start)
        np.testing.assert_array_equal(window[:, : expected.shape[1]], expected)
        assert window.shape == (8, 100)
        assert not window[:, expected.shape[1] :].any()
    if kept:
        assert len(reads) == 1
    elif length > 3000:
        assert len(reads) == 3  # once for the loudest frame, once for the windows, once to go back


def test_sound_that_becomes_shorter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_log_mel, "_KEPT", 0)
    log_mel = LogMel(mels=8, hop=30, width=101, window=3000)
    lengths = iter([200_000, 100_000])
    windows = LogMelWindows(log_mel, lambda: [np.ones(next(lengths), np.float32)])
    with pytest.raises(InputError, match="the sound has become shorter while it was transcribed"):
        windows.window(6000)


def test_sound_without_samples_has_no_windows() -> None:
    with pytest.raises(InputError, match="the sound has no samples: give one or more"):
        LogMelWindows(LogMel(), lambda: [np.zeros(0, np.float32)])
