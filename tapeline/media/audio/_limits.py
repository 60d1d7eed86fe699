"""Bounds of sound that is read."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioLimits:
    """Bounds of a sound file; the file's header is held to them before anything is decoded.

    Attributes:
        max_bytes: largest size of the file.
        max_seconds: longest duration.
        max_samples: largest number of samples of all channels together, at the file's rate: the work of decoding.
        max_channels: largest number of channels.
        min_rate: lowest number of samples per second.
        max_rate: highest number of samples per second.
    """

    max_bytes: int = 2**30
    max_seconds: float = 2 * 60 * 60
    max_samples: int = 2**30
    max_channels: int = 8
    min_rate: int = 1_000
    max_rate: int = 384_000


DEFAULT_LIMITS: Final = AudioLimits()
"""Bounds where none are given: two hours of up to eight channels, 2**30 samples, one GiB."""
