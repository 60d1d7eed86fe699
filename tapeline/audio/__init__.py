"""Sound: WAV and FLAC files, rates, and the features that models take."""

from tapeline.audio._files import read_audio
from tapeline.audio._limits import DEFAULT_LIMITS, AudioLimits
from tapeline.audio._log_mel import PREPROCESSOR_FILE, LogMel
from tapeline.audio._resampling import resample

__all__ = [
    "DEFAULT_LIMITS",
    "PREPROCESSOR_FILE",
    "AudioLimits",
    "LogMel",
    "read_audio",
    "resample",
]
