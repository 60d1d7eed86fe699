"""Transcribes sound window by window with a speech model."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from lang_core import InputError
from tapeline.audio import LogMel
from tapeline.text import Tokenizer
from tapeline.transcribing._config import SpeechConfig
from tapeline.transcribing._prompt import Task, prompt_tokens
from tapeline.transcribing._rules import TokenRules
from tapeline.transcribing._segments import cut_window
from tapeline.transcribing._transcription import Segment, Transcription
from transformer_core.generation import CachedModel, run_prompt


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
        samples: np.ndarray,
        *,
        language: str | None,
        task: Task,
        timestamps: bool,
        on_segment: Callable[[Segment], object] | None,
    ) -> Transcription:
        """Transcribes mono samples f32 [samples] at the extractor's rate.

        Sound longer than a window is cut by the timestamps that the model gives, whether they are asked for or not.

        Args:
            samples: the sound.
            language: language of the sound; None to detect it.
            task: what to do.
            timestamps: whether segments are cut by timestamps in a single window, too.
            on_segment: receives each segment as it comes.

        Raises:
            InputError: samples are none or not finite, or the model does not have the language or the task.
        """
        features = self.log_mel(samples)
        timestamps = timestamps or features.shape[1] > self.log_mel.frames
        rules = TokenRules(self._config, self._model.vocabulary, timestamps=timestamps)
        self._encode(features, 0)
        prompt = prompt_tokens(self._config, language, task, timestamps, self._detected)
        duration = len(samples) / self.log_mel.rate
        segments: list[Segment] = []
        for segment in self._segments(features, prompt, rules, duration):
            segments.append(segment)
            if on_segment is not None:
                on_segment(segment)
        return Transcription(
            text=self._text([token for segment in segments for token in segment.token_ids]),
            segments=tuple(segments),
            language=self._language(prompt),
            task=task,
            duration=duration,
        )

    def _segments(
        self, features: np.ndarray, prompt: Sequence[int], rules: TokenRules, duration: float
    ) -> Iterator[Segment]:
        """Yields the segments of all windows; the first one is encoded already."""
        begin, total, seek = self._config.first_timestamp, features.shape[1], 0
        while seek < total:
            if seek:
                self._encode(features, seek)
            frames = min(self.log_mel.frames, total - seek)
            cuts, advance = cut_window(self._tokens(prompt, rules), begin, frames, timestamps=rules.timestamps)
            for cut in cuts:
                start, end = (min(self._seconds(seek + frame), duration) for frame in (cut.start, cut.stop))
                yield Segment(start=start, end=end, text=self._text(cut.tokens), token_ids=tuple(cut.tokens))
            seek += max(1, advance)

    def _seconds(self, frame: int) -> float:
        return frame * self.log_mel.hop / self.log_mel.rate

    def _encode(self, features: np.ndarray, seek: int) -> None:
        window = features[:, seek : seek + self.log_mel.frames]
        lacking = self.log_mel.frames - window.shape[1]
        self._model.encode(np.pad(window, ((0, 0), (0, lacking)))[None])

    def _tokens(self, prompt: Sequence[int], rules: TokenRules) -> list[int]:
        """Returns the tokens of the window that is encoded, without prompt and end."""
        limit = self._model.capacity
        if self._config.max_length is not None:
            limit = min(limit, self._config.max_length + len(prompt))
        tokens: list[int] = []
        prediction = run_prompt(self._model, prompt)
        while True:
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
