"""Transcribes sound with a CTC model: chunks that overlap, as transformers' pipeline cuts them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from lang_core import InputError
from tapeline.media.audio import Waveform
from tapeline.running.transcribing._ctc_text import CtcVocabulary, FrameSpan
from tapeline.running.transcribing._guards import NO_GUARDS, Guards
from tapeline.running.transcribing._prompt import Task
from tapeline.running.transcribing._transcription import Segment, Transcription, Word
from tapeline.running.transcribing._turns import FairLock

_SIDES: Final = 6  # a sixth of a chunk at either side is heard with its neighbour
_PAUSE: Final = 0.6  # seconds without a character that end a segment
_LONGEST: Final = 10.0  # seconds of a segment


class CtcModel(Protocol):
    """Model that gives scores of characters for each frame of raw sound.

    Attributes:
        samples: the most samples that it takes.
        ratio: samples per frame.
        fewest: samples of one frame.
    """

    samples: int
    ratio: int
    fewest: int

    def best(self, values: np.ndarray) -> np.ndarray:
        """Returns the likeliest result i32 [frames] of each frame of values f32 [samples]."""
        ...


class CtcTranscriber:
    """CTC model with its settings; several threads may transcribe, chunk by chunk.

    Attributes:
        waveform: settings of samples.
    """

    def __init__(self, directory: Path, model: CtcModel) -> None:
        """Reads the settings of a bundle.

        Raises:
            ConfigError: a file is missing or damaged, or another model's.
            InputError: the model hears too few samples at a time for chunks.
        """
        self.waveform: Final = Waveform.load(directory)
        self._vocabulary: Final = CtcVocabulary.load(directory)
        self._model: Final = model
        self._turns: Final = FairLock()
        side = model.samples / self.waveform.rate / _SIDES
        self._side: Final = round(side * self.waveform.rate / model.ratio) * model.ratio
        if 2 * self._side < model.fewest:
            raise InputError(
                f"{directory}: the bundle hears {model.samples} samples at a time, of which {self._side} at either "
                f"side are heard again: too few for chunks, as a frame has {model.fewest}: export with a longer "
                "`sequence`"
            )

    @property
    def rate(self) -> int:
        """Samples per second."""
        return self.waveform.rate

    def __call__(
        self,
        read: Callable[[], Iterable[np.ndarray]],
        *,
        language: str | None,
        task: Task,
        timestamps: bool,
        words: bool,
        on_segment: Callable[[Segment], object] | None,
        check: Callable[[], object] | None = None,
        guards: Guards = NO_GUARDS,
    ) -> Transcription:
        """Transcribes mono samples at the model's rate.

        Args:
            read: begins to read the sound, and returns its samples f32 [samples] in blocks.
            language: refused: a CTC model has one.
            task: ``transcribe``.
            timestamps: whether segments end at pauses; if not, all of the sound is one.
            words: whether words and their times are returned.
            on_segment: receives each segment when the sound was heard.
            check: called before each chunk; its exceptions end the transcription.
            guards: refused: a CTC model writes no text of its own.

        Raises:
            InputError: the sound is too short, or a language or another task is asked for.
        """
        if language is not None or task != "transcribe":
            name, value = ("language", language) if language is not None else ("task", task)
            raise InputError(
                f"{name}={value!r}: a CTC model writes what it hears in the one language it knows: leave `{name}` out"
            )
        if guards != NO_GUARDS:
            raise InputError("guards: a CTC model writes each frame by itself, and repeats nothing: leave them out")
        results: list[int] = []
        total = 0
        for chunk, left, right in chunks_of(read(), self._model.samples, self._side):
            with self._turns:
                if check is not None:
                    check()
                best = self._model.best(self.waveform(chunk))
            frames = round(len(chunk) * (1 / self._model.ratio))
            first, last = (round(side / len(chunk) * frames) for side in (left, right))
            results += best[first : frames - last].tolist()
            total += len(chunk) - left - right
        duration = total / self.rate
        characters = self._vocabulary.characters(results)
        spoken = [self._word(span) for span in self._vocabulary.words(characters)]
        text = self._vocabulary.text(characters)
        whole = Segment(start=0.0, end=duration, text=text, token_ids=())
        segments = self._segments(characters) if timestamps else [whole]
        if on_segment is not None:
            for segment in segments:
                on_segment(segment)
        return Transcription(
            text=text,
            segments=tuple(segments),
            language=None,
            task=task,
            duration=duration,
            words=tuple(spoken) if words else (),
        )

    def _word(self, span: FrameSpan) -> Word:
        return Word(start=self._seconds(span.start), end=self._seconds(span.stop), text=span.text)

    def _seconds(self, frame: int) -> float:
        return frame * self._model.ratio / self.rate

    def _segments(self, characters: Sequence[FrameSpan]) -> list[Segment]:
        """Returns segments that end at pauses, or at a word's end when they grow long."""
        groups: list[list[FrameSpan]] = []
        for word in self._vocabulary.words(characters):
            last = groups[-1] if groups else None
            near = last is not None and self._seconds(word.start - last[-1].stop) < _PAUSE
            if last is None or not near or self._seconds(word.stop - last[0].start) > _LONGEST:
                groups.append([word])
            else:
                last.append(word)
        return [self._segment(characters, group[0].start, group[-1].stop) for group in groups]

    def _segment(self, characters: Sequence[FrameSpan], start: int, stop: int) -> Segment:
        text = self._vocabulary.text([span for span in characters if start <= span.start and span.stop <= stop])
        return Segment(start=self._seconds(start), end=self._seconds(stop), text=text, token_ids=())


def chunks_of(blocks: Iterable[np.ndarray], samples: int, side: int) -> Iterator[tuple[np.ndarray, int, int]]:
    """Yields chunks f32 [samples] of sound, and how many samples at the left and at the right are another chunk's.

    Args:
        blocks: samples f32 [samples] in pieces of any size.
        samples: size of a chunk.
        side: samples that are heard with a neighbour, at either side.

    Raises:
        InputError: there are no samples.
    """
    pending, first, step = np.zeros(0, np.float32), True, samples - 2 * side
    for block in blocks:
        pending = np.concatenate([pending, block.astype(np.float32, copy=False)])
        while len(pending) > samples:
            yield pending[:samples], 0 if first else side, side
            pending, first = pending[step:], False
    if not len(pending):
        raise InputError("the sound has no samples: give one or more")
    left = 0 if first else side
    if len(pending) > left:
        yield pending, left, 0
