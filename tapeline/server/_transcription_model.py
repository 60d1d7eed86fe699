"""Models that turn sound into text."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from lang_core import checked_choices
from tapeline.audio import AudioLimits
from tapeline.serving import BusyError
from tapeline.transcribing import Segment, Task, Transcription

_MOST_WAITING: Final = 16


class SpeechReader(Protocol):
    """``LoadedModel`` of a speech model, as far as the server needs it."""

    def transcribe(
        self,
        audio: bytes,
        *,
        language: str | None,
        task: Task,
        timestamps: bool,
        limits: AudioLimits,
        on_segment: Callable[[Segment], object],
    ) -> Transcription:
        """Turns a sound file into text."""
        ...

    def close(self) -> None:
        """Closes the session."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptionModel:
    """Model that turns sound into text, for several threads: one call runs at a time.

    Attributes:
        name: name of the model.
        created: when its bundle was written, in seconds since 1970.
        context: positions of its caches: largest number of tokens of a window.
        reader: turns sound into text.
    """

    name: str
    created: int
    context: int
    reader: SpeechReader
    _turn: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _waiting: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(_MOST_WAITING), repr=False)

    @checked_choices
    def transcribe(
        self,
        audio: bytes,
        language: str | None,
        limits: AudioLimits,
        *,
        timestamps: bool,
        check: Callable[[], object],
    ) -> Transcription:
        """Turns a sound file into text.

        Args:
            audio: bytes of a WAV or FLAC file.
            language: language that is spoken; None to detect it.
            limits: bounds of the file.
            timestamps: whether the model gives times.
            check: is called before the sound is read and after each segment; what it raises ends the transcription.

        Raises:
            InputError: the sound is damaged or beyond a bound, or the model does not have the language.
            BusyError: too many calls wait.
        """
        if not self._waiting.acquire(blocking=False):
            raise BusyError(_MOST_WAITING, 1.0)
        try:
            with self._turn:
                check()
                return self.reader.transcribe(
                    audio,
                    language=language,
                    task="transcribe",
                    timestamps=timestamps,
                    limits=limits,
                    on_segment=lambda _: check(),
                )
        finally:
            self._waiting.release()

    def drain(self, seconds: float) -> None:
        """Waits for the call that runs."""
        if self._turn.acquire(timeout=seconds):
            self._turn.release()

    def close(self) -> None:
        """Frees the model."""
        with self._turn:
            self.reader.close()
