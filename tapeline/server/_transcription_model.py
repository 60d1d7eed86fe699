"""Models that turn sound into text."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Final, Protocol

from generation.engine import BusyError
from lang_core import checked_choices
from tapeline.media.audio import AudioLimits
from tapeline.running.transcribing import Segment, Task, Transcription
from tapeline.server._activity import Activity

MOST_TRANSCRIPTIONS: Final = 16
"""Largest number of transcriptions of a model at once; their windows take turns."""


class SpeechReader(Protocol):
    """``LoadedModel`` of a speech model, as far as the server needs it."""

    def transcribe(
        self,
        audio: bytes,
        *,
        language: str | None,
        task: Task,
        timestamps: bool,
        word_timestamps: bool,
        limits: AudioLimits,
        on_segment: Callable[[Segment], object],
        check: Callable[[], object],
    ) -> Transcription:
        """Turns a sound file into text; several threads may."""
        ...

    def close(self) -> None:
        """Closes the session."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptionModel:
    """Model that turns sound into text, for several threads: windows of their sound take turns.

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
    # Threads of its own: long transcriptions leave those of other requests free.
    _threads: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(MOST_TRANSCRIPTIONS, thread_name_prefix="transcription"), repr=False
    )
    _active: set[Future[Transcription]] = field(default_factory=set, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _activity: Activity = field(default_factory=Activity, repr=False)

    @checked_choices
    def transcribe(
        self,
        audio: bytes,
        language: str | None,
        limits: AudioLimits,
        *,
        timestamps: bool,
        words: bool = False,
        check: Callable[[], object],
        task: Task = "transcribe",
    ) -> Future[Transcription]:
        """Begins to turn a sound file into text, in a thread.

        Args:
            audio: bytes of a WAV or FLAC file.
            language: language that is spoken; None to detect it.
            limits: bounds of the file.
            timestamps: whether the model gives times.
            words: whether it gives times of words.
            task: whether the text is in the language that is spoken, or in English.
            check: is called before each block that is decoded, each window and each token, and after each segment; its
                exceptions end the transcription.

        Returns:
            The transcription. It raises InputError if the sound is damaged or beyond a bound, or the model does not
            have the language.

        Raises:
            BusyError: too many transcriptions run.
        """
        with self._lock:
            if len(self._active) >= MOST_TRANSCRIPTIONS:
                raise BusyError(MOST_TRANSCRIPTIONS, 1.0)
            future = self._threads.submit(self._transcribed, audio, language, limits, timestamps, words, check, task)
            self._active.add(future)
        future.add_done_callback(self._end)
        return future

    def _transcribed(
        self,
        audio: bytes,
        language: str | None,
        limits: AudioLimits,
        timestamps: bool,
        words: bool,
        check: Callable[[], object],
        task: Task,
    ) -> Transcription:
        def go_on() -> None:
            self._activity.beat()
            check()

        with self._activity.call():
            return self.reader.transcribe(
                audio,
                language=language,
                task=task,
                timestamps=timestamps,
                word_timestamps=words,
                limits=limits,
                on_segment=lambda _: go_on(),
                check=go_on,
            )

    def stalled_seconds(self) -> float:
        """Returns the time since the last progress of any transcription; 0 if none runs."""
        return self._activity.stalled_seconds()

    def fault(self, seconds: float) -> str | None:
        """Returns why the model cannot answer: transcriptions do not make progress for some seconds; None if it can."""
        return self._activity.fault(seconds)

    def drain(self, seconds: float) -> None:
        """Waits for the transcriptions that run."""
        with self._lock:
            active = {*self._active}
        wait(active, timeout=seconds)

    def close(self) -> None:
        """Frees the model after running transcriptions."""
        self._threads.shutdown()
        self.reader.close()

    def _end(self, future: Future[Transcription]) -> None:
        with self._lock:
            self._active.discard(future)
