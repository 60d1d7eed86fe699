"""Log-mel features of sound, as transformers' ``WhisperFeatureExtractor`` computes them."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from lang_core import InputError
from tapeline.media.audio._mel_filters import mel_filters
from transformer_core import ConfigFields, config_fields

PREPROCESSOR_FILE: Final = "preprocessor_config.json"
"""File with the settings of a feature extractor."""

_PROCESSOR_FILE: Final = "processor_config.json"  # of newer checkpoints, which hold the settings in a field
_KIND: Final = "WhisperFeatureExtractor"
_HIGHEST: Final = 8000.0  # Hz, whatever the rate
_FLOOR: Final = 1e-10  # of the power
_RANGE: Final = 8.0  # powers of ten below the loudest
_ROWS: Final = 2**11  # frames that are computed at once
_KEPT: Final = 2**15  # frames of sound that is read once: five minutes


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
        fields = extractor_settings(directory)
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
            InputError: samples are missing or not one row, or one is NaN or infinite.
        """
        check_samples(samples)
        powers = np.concatenate([*self.log_powers((samples,))], axis=1)
        return scaled(powers, float(powers.max()))

    def log_powers(self, blocks: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """Yields the decimal logarithms f32 [mels, frames] of the power in each band, some frames at a time.

        Args:
            blocks: mono samples f32 [samples], at ``rate``, in pieces of any size.
        """
        half, count, first = self.width // 2, 0, True
        pending = np.zeros(0, np.float32)  # samples behind the last frame that was yielded
        piece = (_ROWS - 1) * self.hop + self.width
        for block in blocks:
            count += len(block)
            pending = np.concatenate([pending, block.astype(np.float32, copy=False)])
            if first and count > max(self.window, half + 1):
                pending = np.concatenate([pending[half:0:-1], pending])
                first = False
            # The samples that stay are enough to be mirrored at the end.
            while not first and len(pending) > _ROWS * self.hop + self.width:
                yield self._powers_of(pending[:piece], _ROWS)
                pending = pending[_ROWS * self.hop :]
        frames = max(count, self.window) // self.hop
        if first:
            padded = np.pad(pending, (0, max(0, self.window - count)), constant_values=self.padding)
            pending = np.pad(padded, half, mode="reflect")
        else:
            frames = (len(pending) - half) // self.hop
            pending = np.pad(pending, (0, half), mode="reflect")
        for start in range(0, frames, _ROWS):
            rows = min(_ROWS, frames - start)
            yield self._powers_of(pending[start * self.hop :][: (rows - 1) * self.hop + self.width], rows)

    def _powers_of(self, padded: np.ndarray, frames: int) -> np.ndarray:
        """Returns the decimal logarithm f32 [mels, frames] of the power in each band."""
        pieces = np.lib.stride_tricks.sliding_window_view(padded, self.width)[:: self.hop][:frames]
        hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(self.width) / self.width)
        filters = mel_filters(self.width // 2 + 1, self.mels, _HIGHEST, self.rate)
        spectrum = np.fft.rfft(pieces * hann)
        bands = (spectrum.real**2 + spectrum.imag**2) @ filters
        return np.log10(np.maximum(bands, _FLOOR)).T.astype(np.float32)


class LogMelWindows:
    """Features of sound of any length, window by window.

    The features of a window depend on the loudest frame of all of the sound. So the sound is read once to find it, and
    once more for the windows, unless it is short.

    Attributes:
        samples: number of samples of the sound.
        frames: number of frames of the sound.
    """

    def __init__(self, log_mel: LogMel, read: Callable[[], Iterable[np.ndarray]]) -> None:
        """Reads all of the sound.

        Args:
            log_mel: the extractor.
            read: begins to read, and returns mono samples f32 [samples] in blocks; is called at most twice, and once
                more for each time that a window lies before the last one.

        Raises:
            InputError: samples are missing, or ``read`` raises it.
        """
        self._log_mel: Final = log_mel
        self._read: Final = read
        self.samples = self.frames = 0
        self._loudest = -math.inf
        self._batches: list[np.ndarray] = []  # of consecutive frames
        self._start = 0  # first frame of the batches
        self._rest: Iterator[np.ndarray] | None = None  # batches that follow
        kept = True
        for batch in log_mel.log_powers(self._counted()):
            self.frames += batch.shape[1]
            self._loudest = max(self._loudest, float(batch.max()))
            kept = kept and self.frames <= _KEPT
            self._batches = [*self._batches, batch] if kept else []
        self._kept: Final = kept
        if not self.samples:
            raise InputError("the sound has no samples: give one or more")

    def window(self, start: int) -> np.ndarray:
        """Returns the features f32 [mels, frames] of the window that begins with a frame; zeros follow the sound.

        Raises:
            InputError: the sound is not the same any more.
        """
        stop = min(start + self._log_mel.frames, self.frames)
        powers = self._frames(start, stop)
        lacking = self._log_mel.frames - powers.shape[1]
        return np.pad(scaled(powers, self._loudest), ((0, 0), (0, lacking)))

    def _counted(self) -> Iterator[np.ndarray]:
        for block in self._read():
            self.samples += len(block)
            yield block

    def _frames(self, start: int, stop: int) -> np.ndarray:
        if not self._kept:
            self._advance(start, stop)
        return np.concatenate(self._batches, axis=1)[:, start - self._start : stop - self._start]

    def _advance(self, start: int, stop: int) -> None:
        """Reads on to a frame, and forgets the samples before another one."""
        if self._rest is None or start < self._start:
            self._rest, self._batches, self._start = self._log_mel.log_powers(self._read()), [], 0
        end = self._start + sum(batch.shape[1] for batch in self._batches)
        while end < stop:
            batch = next(self._rest, None)
            if batch is None:
                raise InputError("the sound has become shorter while it was transcribed: do not change the file")
            self._batches.append(batch)
            end += batch.shape[1]
            while self._batches and self._start + self._batches[0].shape[1] <= start:
                self._start += self._batches.pop(0).shape[1]


def scaled(powers: np.ndarray, loudest: float) -> np.ndarray:
    """Returns features of logarithms of powers f32 [mels, frames], given the greatest of all of the sound."""
    powers = np.maximum(powers, np.float32(loudest) - np.float32(_RANGE))
    powers += 4
    powers /= 4
    return powers


def check_samples(samples: np.ndarray) -> None:
    """Checks that samples f32 [samples] are one row of finite floats.

    Raises:
        InputError: they are not, or there are none.
    """
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


def extractor_settings(directory: Path) -> ConfigFields:
    """Returns the fields of a feature extractor, from either file that may have them."""
    remedy = "it says how sound becomes features: copy it into the model's directory, and export again"
    newer = directory / _PROCESSOR_FILE
    if newer.exists() and not (directory / PREPROCESSOR_FILE).exists():
        return config_fields(str(newer), remedy).object("feature_extractor")
    return config_fields(str(directory / PREPROCESSOR_FILE), remedy)
