"""Log-mel features of sound, as transformers' ``WhisperFeatureExtractor`` computes them."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from lang_core import InputError
from tapeline.audio._mel_filters import mel_filters
from transformer_core import ConfigFields, config_fields

PREPROCESSOR_FILE: Final = "preprocessor_config.json"
"""File with the settings of a feature extractor."""

_PROCESSOR_FILE: Final = "processor_config.json"  # of newer checkpoints, which hold the settings in a field
_KIND: Final = "WhisperFeatureExtractor"
_HIGHEST: Final = 8000.0  # Hz, whatever the rate
_FLOOR: Final = 1e-10  # of the power
_RANGE: Final = 8.0  # powers of ten below the loudest
_ROWS: Final = 2**11  # frames that are computed at once


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMel:
    """Feature extractor of Whisper.

    Attributes:
        mels: number of bands.
        rate: samples per second.
        hop: samples from one frame to the next.
        width: samples of a frame.
        window: samples of a window, to which shorter sound is padded.
        padding: sample that shorter sound is padded with.
    """

    mels: int = 80
    rate: int = 16_000
    hop: int = 160
    width: int = 400
    window: int = 480_000
    padding: float = 0.0

    @classmethod
    def load(cls, directory: Path) -> "LogMel":
        """Reads the settings of a checkpoint or a bundle.

        Raises:
            ConfigError: there are none, or they are of another kind of extractor, or out of range.
        """
        fields = _settings(directory)
        fields.choice("feature_extractor_type", (_KIND,), _KIND)
        if fields.values.get("dither"):
            fields.refuse("dither", "0: noise would make every run another one")
        rate = _size(fields, "sampling_rate", 16_000, 384_000)
        return cls(
            mels=_size(fields, "feature_size", 80, 2**12),
            rate=rate,
            hop=_size(fields, "hop_length", 160, 2**13),
            width=_size(fields, "n_fft", 400, 2**13),
            window=rate * _size(fields, "chunk_length", 30, 600),
            padding=_padding(fields),
        )

    @property
    def frames(self) -> int:
        """Number of frames of a window."""
        return self.window // self.hop

    def __call__(self, samples: np.ndarray) -> np.ndarray:
        """Returns the features f32 [mels, frames] of mono samples f32 [samples] at ``rate``.

        Sound of at most a window has ``frames`` of them; longer sound one per ``hop`` samples.

        Raises:
            InputError: there are no samples, they are not one row, or one is NaN or infinite.
        """
        _check_samples(samples)
        lacking = max(0, self.window - len(samples))
        padded = np.pad(samples.astype(np.float32, copy=False), (0, lacking), constant_values=self.padding)
        powers = self._log_powers(np.pad(padded, self.width // 2, mode="reflect"), len(padded) // self.hop)
        np.maximum(powers, powers.max() - _RANGE, out=powers)
        powers += 4
        powers /= 4
        return powers

    def _log_powers(self, padded: np.ndarray, frames: int) -> np.ndarray:
        """Returns the decimal logarithm f32 [mels, frames] of the power in each band."""
        pieces = np.lib.stride_tricks.sliding_window_view(padded, self.width)[:: self.hop]
        hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(self.width) / self.width)
        filters = mel_filters(self.width // 2 + 1, self.mels, _HIGHEST, self.rate)
        powers = np.empty((self.mels, frames), np.float32)
        for start in range(0, frames, _ROWS):
            stop = min(start + _ROWS, frames)
            spectrum = np.fft.rfft(pieces[start:stop] * hann)
            bands = (spectrum.real**2 + spectrum.imag**2) @ filters
            powers[:, start:stop] = np.log10(np.maximum(bands, _FLOOR)).T
        return powers


def _check_samples(samples: np.ndarray) -> None:
    if samples.ndim != 1 or samples.dtype.kind != "f" or not len(samples):
        raise InputError(
            f"samples are {samples.dtype}{list(samples.shape)}: expected one row of one or more floats, mono"
        )
    if not np.isfinite(samples).all():
        raise InputError(
            f"sample {int(np.argmin(np.isfinite(samples)))} is NaN or infinite: give numbers, mostly -1 to 1"
        )


def _size(fields: ConfigFields, name: str, default: int, most: int) -> int:
    """Reads a size; one beyond a bound would take memory without end."""
    size = fields.integer(name, default)
    if size > most:
        fields.refuse(name, f"at most {most}")
    return size


def _padding(fields: ConfigFields) -> float:
    value = fields.values.get("padding_value") or 0.0
    if not isinstance(value, int | float) or not math.isfinite(value):
        fields.refuse("padding_value", "a finite number")
    return float(value)


def _settings(directory: Path) -> ConfigFields:
    remedy = "it says how sound becomes features: copy it into the model's directory, and export again"
    newer = directory / _PROCESSOR_FILE
    if newer.exists() and not (directory / PREPROCESSOR_FILE).exists():
        return config_fields(str(newer), remedy).object("feature_extractor")
    return config_fields(str(directory / PREPROCESSOR_FILE), remedy)
