"""Transcribes sound window by window with a speech model."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from generation import CachedModel, run_prompt
from lang_core import InputError
from tapeline.media.audio import LogMel, LogMelWindows
from tapeline.running.transcribing._config import SpeechConfig
from tapeline.running.transcribing._prompt import Task, prompt_tokens
from tapeline.running.transcribing._rules import TokenRules
from tapeline.running.transcribing._segments import Cut, cut_window
from tapeline.running.transcribing._transcription import Segment, Transcription
from tapeline.running.transcribing._turns import FairLock
from tapeline.text import Tokenizer


class SpeechModel(CachedModel, Protocol):
    """Causal language model that attends to sound.

    Attributes:
        vocabulary: V.
        features: shape of the sound's features that it takes, (mels, frames).
    """

    vocabulary: int
    features: tuple[int, int]

    def encode(self, features: np.ndarray) -> None:
        """Takes features f32 [1, mels, frames], to which all calls that follow attend; caches count as empty."""
        ...


class Transcriber:
    """Speech model with its feature extractor, tokenizer and settings.

    Several threads may transcribe: windows of their sound take turns on the model, in the order in which they come.

    Attributes:
        log_mel: makes features of samples.
    """

    def __init__(self, directory: Path, model: SpeechModel) -> None:
        """Reads the settings of a bundle.

        Args:
            directory: the bundle's.
            model: its model.

        Raises:
            InputError: a file is missing or damaged, or the features are not those that the model takes.
        """
        self.log_mel: Final = LogMel.load(directory)
        self._model: Final = model
        self._turns: Final = FairLock()
        self._config: Final = SpeechConfig.load(directory, model.vocabulary)
        self._tokenizer: Final = Tokenizer.load(directory)
        mels, frames = self.log_mel.mels, self.log_mel.frames
        if (mels, frames) != model.features:
            raise InputError(
                f"{directory}: sound becomes {mels} bands and {frames} frames, and the model takes "
                f"{model.features[0]} and {model.features[1]}: preprocessor_config.json is another model's"
            )

    def __call__(
        self,
        read: Callable[[], Iterable[np.ndarray]],
        *,
        language: str | None,
        task: Task,
        timestamps: bool,
        on_segment: Callable[[Segment], object] | None,
        check: Callable[[], object] | None = None,
    ) -> Transcription:
        """Transcribes mono samples at the extractor's rate.

        Sound longer than a window is cut by the timestamps that the model gives, whether they are asked for or not.

        Args:
            read: begins to read the sound, and returns its samples f32 [samples] in blocks; sound of more than some
                minutes is read twice.
            language: language of the sound; None to detect it.
            task: transcribe or translate.
            timestamps: whether segments are cut by timestamps in a single window, too.
            on_segment: receives each segment as it comes.
            check: called before each window and each token; its exceptions end the transcription.

        Raises:
            InputError: samples are none or not finite, or the model does not have the language or the task.
        """
        check = check or _go_on
        features = LogMelWindows(self.log_mel, read)
        timestamps = timestamps or features.frames > self.log_mel.frames
        rules = TokenRules(self._config, self._model.vocabulary, timestamps=timestamps)
        duration = features.samples / self.log_mel.rate
        prompt: Sequence[int] = ()
        segments: list[Segment] = []
        seek = 0
        while seek < features.frames:
            window = features.window(seek)
            with self._turns:  # between two windows another transcription may use the model
                check()  # the wait may have been long
                self._model.encode(window[None])
                prompt = prompt or prompt_tokens(self._config, language, task, timestamps, self._detected)
                tokens = self._tokens(prompt, rules, check)
            frames = min(self.log_mel.frames, features.frames - seek)
            cuts, advance = cut_window(tokens, self._config.first_timestamp, frames, timestamps=rules.timestamps)
            for cut in cuts:
                segments.append(self._segment(cut, seek, duration))
                if on_segment is not None:
                    on_segment(segments[-1])
            seek += max(1, advance)
        return Transcription(
            text=self._text([token for segment in segments for token in segment.token_ids]),
            segments=tuple(segments),
            language=self._language(prompt),
            task=task,
            duration=duration,
        )

    def _segment(self, cut: Cut, seek: int, duration: float) -> Segment:
        start, end = (min(self._seconds(seek + frame), duration) for frame in (cut.start, cut.stop))
        return Segment(start=start, end=end, text=self._text(cut.tokens), token_ids=tuple(cut.tokens))

    def _seconds(self, frame: int) -> float:
        return frame * self.log_mel.hop / self.log_mel.rate

    def _tokens(self, prompt: Sequence[int], rules: TokenRules, check: Callable[[], object]) -> list[int]:
        """Returns the tokens of the window that is encoded, without prompt and end."""
        limit = self._model.capacity
        if self._config.max_length is not None:
            limit = min(limit, self._config.max_length + len(prompt))
        tokens: list[int] = []
        prediction = run_prompt(self._model, prompt)
        while True:
            check()
            token = rules.choose(prediction.logits(), tokens)
            if token == self._config.eos:
                return tokens
            tokens.append(token)
            position = len(prompt) + len(tokens)
            if position >= limit:
                return tokens
            prediction = self._model.decode(token, position - 1)

    def _detected(self) -> int:
        """Returns the token of the language that the encoded window is likeliest in."""
        logits = run_prompt(self._model, [self._config.start]).logits()
        return max(self._config.languages.values(), key=lambda token: (logits[token], -token))

    def _language(self, prompt: Sequence[int]) -> str | None:
        if not self._config.multilingual:
            return "en"
        named = {token: name for name, token in self._config.languages.items()}
        return next((named[token].strip("<|>") for token in prompt if token in named), None)

    def _text(self, tokens: Sequence[int]) -> str:
        return self._tokenizer.decode([token for token in tokens if token < self._config.first_timestamp])


def _go_on() -> None:
    """Lets the transcription go on."""
