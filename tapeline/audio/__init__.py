"""Sound: WAV and FLAC files, rates, and the features that models take."""

import importlib
from typing import TYPE_CHECKING, Any

from tapeline.audio._limits import DEFAULT_LIMITS, AudioLimits
from tapeline.audio._log_mel import PREPROCESSOR_FILE, LogMel
from tapeline.audio._resampling import resample

if TYPE_CHECKING:
    from tapeline.audio._reading import read_audio

__all__ = [
    "DEFAULT_LIMITS",
    "PREPROCESSOR_FILE",
    "AudioLimits",
    "LogMel",
    "read_audio",
    "resample",
]


def __getattr__(name: str) -> Any:
    """Imports the reader of files when it is first asked for, because its library is loaded with it."""
    if name == "read_audio":
        return getattr(importlib.import_module(f"{__name__}._reading"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
