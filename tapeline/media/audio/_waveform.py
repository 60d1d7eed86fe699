"""Raw samples as a model of sound takes them (wav2vec2's feature extractor)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from lang_core import checked_choices
from tapeline.media.audio._log_mel import extractor_settings

_KINDS: Final = ("Wav2Vec2FeatureExtractor",)
_EPSILON: Final = 1e-7


@checked_choices
@dataclass(frozen=True, slots=True)
class Waveform:
    """Settings of raw samples.

    Attributes:
        rate: samples per second.
        normalizes: whether samples get the mean 0 and the variance 1.
    """

    rate: int
    normalizes: bool

    @classmethod
    def load(cls, directory: Path) -> "Waveform":
        """Reads the settings of a checkpoint or a bundle.

        Raises:
            ConfigError: they are missing, of another kind of extractor, or out of range.
        """
        fields = extractor_settings(directory)
        fields.choice("feature_extractor_type", _KINDS, _KINDS[0])
        if fields.integer("feature_size", 1) != 1:
            fields.refuse("feature_size", "1: one channel of samples")
        rate = fields.integer("sampling_rate", 16_000)
        if not 1_000 <= rate <= 384_000:
            fields.refuse("sampling_rate", "1000 to 384000")
        return cls(rate, fields.boolean("do_normalize", True))

    def __call__(self, samples: np.ndarray) -> np.ndarray:
        """Returns the values f32 [samples] of mono samples f32 [samples], bit for bit as transformers' NumPy form."""
        if not self.normalizes:
            return samples
        return (samples - samples.mean()) / np.sqrt(samples.var() + _EPSILON)
