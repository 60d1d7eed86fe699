"""A bundle of a speech model, as the model of a transcription."""

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import numpy as np

import tapeline.media.audio
from lang_core import InputError
from runtime import Session
from tapeline.bundle import Bundle
from tapeline.runners import ENCODE, BundleModel, encoded
from transformer_core import ALIGN

Sound = str | os.PathLike[str] | bytes | np.ndarray
"""Path of a WAV or FLAC file, the bytes of one, or mono samples [samples]."""

_FEATURES: Final = "input_features"
_VALUES: Final = ["input_values", "lengths"]
_LOGITS: Final = "logits"


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
        points = [point for point in bundle.config.entry_points if point.name == ALIGN]
        self._align: Final = session.function(ALIGN) if points else None
        self._align_shape: Final = points[0].arguments[0].spec.shape if points else (0, 0)
        self._align_given: Final = len(points[0].arguments) - 1 if points else 0  # of those that prefill takes

    def encode(self, features: np.ndarray) -> None:
        """Takes features f32 [1, mels, frames], to which all calls that follow attend."""
        self._seen = encoded(self._bundle, self._session, (features,))

    def align(self, tokens: Sequence[int]) -> np.ndarray | None:
        """Returns the weights f32 [heads, tokens, S'] of attention to what is encoded; None without alignment heads."""
        if self._align is None:
            return None
        rows = np.zeros(self._align_shape, np.int32)
        rows[0, : len(tokens)] = tokens
        return self._align(rows, *self._seen[: self._align_given])[0].numpy()[0, :, : len(tokens)]


def hears_frames(bundle: Bundle) -> bool:
    """Returns whether a bundle gives scores of characters for each frame of raw sound (CTC)."""
    points = {point.name: point for point in bundle.config.entry_points}
    forward = points.get("forward")
    if forward is None or [argument.name for argument in forward.arguments] != _VALUES:
        return False
    return any(result.name == _LOGITS and len(result.spec.shape) == 3 for result in forward.results)


class FramesBundle:
    """A bundle of a CTC model. Implements ``CtcModel``.

    Attributes:
        samples: the most samples that it takes.
        ratio: samples per frame.
        fewest: samples of one frame.
    """

    def __init__(self, bundle: Bundle, session: Session) -> None:
        """Takes a bundle for which ``hears_frames`` is true."""
        point = bundle.entry_point("forward")
        self._batch, self.samples = point.arguments[0].spec.shape
        self._result: Final = [result.name for result in point.results].index(_LOGITS)
        self._function: Final = session.function(point.name)
        self.ratio, self.fewest = (int(bundle.config.model[name]) for name in _SIZES)

    def best(self, values: np.ndarray) -> np.ndarray:
        """Returns the likeliest result i32 [frames] of each frame of values f32 [samples].

        Raises:
            InputError: there are too few samples for one frame.
        """
        if len(values) < self.fewest:
            raise InputError(f"the sound has {len(values)} samples: the model hears {self.fewest} or more")
        rows, lengths = np.zeros((self._batch, self.samples), np.float32), np.full(self._batch, self.samples, np.int32)
        rows[0, : len(values)], lengths[0] = values, len(values)
        logits = self._function(rows, lengths)[self._result].numpy()[0]
        frames = (len(values) - self.fewest) // self.ratio + 1
        return logits[:frames].argmax(-1).astype(np.int32)


_SIZES: Final = ("samples_per_frame", "fewest_samples")
