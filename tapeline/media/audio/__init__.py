"""Sound: WAV and FLAC files, rates, and the features that models take."""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from tapeline.media.audio._files import read_audio, read_blocks, resample
    from tapeline.media.audio._limits import DEFAULT_LIMITS, AudioLimits
    from tapeline.media.audio._log_mel import PREPROCESSOR_FILE, LogMel, LogMelWindows, check_samples
    from tapeline.media.audio._waveform import Waveform

export_lazily(__name__)
