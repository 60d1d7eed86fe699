"""A bundle of a speech model, as the model of a transcription."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import numpy as np

import tapeline.media.audio
from lang_core import InputError
from runtime import Session
from tapeline.bundle import Bundle
from tapeline.runners import ENCODE, BundleModel, encoded

Sound = str | os.PathLike[str] | bytes | np.ndarray
"""Path of a WAV or FLAC file, the bytes of one, or mono samples [samples]."""

_FEATURES: Final = "input_features"


def blocks_of(
    audio: Sound,
    rate: int | None,
    wanted: int,
    limits: tapeline.media.audio.AudioLimits,
    check: Callable[[], object] | None,
) -> Callable[[], Iterable[np.ndarray]]:
    """Returns a function that begins to read mono samples of a rate, and returns blocks f32 [samples].

    Args:
        audio: the sound.
        rate: samples per second of an array; the wanted rate if None.
        wanted: samples per second of the result.
        limits: bounds of a file.
        check: is called before each block of a file is decoded.

    Raises:
        InputError: an array is not one row of finite floats, or is empty.
    """
    if isinstance(audio, np.ndarray):
        tapeline.media.audio.check_samples(audio)
        samples = audio if rate is None else tapeline.media.audio.resample(audio, rate, wanted)
        return lambda: (samples,)
    source = audio if isinstance(audio, bytes) else Path(audio)
    return lambda: tapeline.media.audio.read_blocks(source, wanted, limits, check=check)


class SpeechBundle(BundleModel):
    """A bundle with a decoder that attends to audio.

    Attributes:
        features: shape of the sound's features, (mels, frames).
    """

    def __init__(self, bundle: Bundle, session: Session) -> None:
        """Makes empty caches; nothing is encoded yet.

        Raises:
            InputError: the bundle does not take audio, or as for ``BundleModel``.
        """
        names = [point.name for point in bundle.config.entry_points]
        arguments = bundle.entry_point(ENCODE).arguments if ENCODE in names else []
        if [argument.name for argument in arguments] != [_FEATURES]:
            raise InputError(
                f"{bundle.path} has the entry points {', '.join(names)}, and none that takes sound: transcription "
                "needs a bundle of a Whisper with encode, prefill and decode"
            )
        super().__init__(bundle, session, None)
        _, mels, frames = arguments[0].spec.shape
        self.features = mels, frames

    def encode(self, features: np.ndarray) -> None:
        """Takes features f32 [1, mels, frames], to which all calls that follow attend."""
        self._seen = encoded(self._bundle, self._session, (features,))
