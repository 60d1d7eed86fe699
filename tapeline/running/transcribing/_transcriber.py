"""Transcribes sound window by window with a speech model."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from generation import CachedModel, run_prompt
from lang_core import InputError
from tapeline.media.audio import LogMel, LogMelWindows
from tapeline.running.transcribing._alignment import token_times
from tapeline.running.transcribing._config import SpeechConfig
from tapeline.running.transcribing._guards import NO_GUARDS, Guards, compression, drawn, log_probability
from tapeline.running.transcribing._prompt import Task, prompt_tokens
from tapeline.running.transcribing._rules import TokenRules
from tapeline.running.transcribing._segments import Cut, cut_window
from tapeline.running.transcribing._transcription import Segment, Transcription, Word
from tapeline.running.transcribing._turns import FairLock
from tapeline.running.transcribing._words import TimedToken, words_of
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

    def align(self, tokens: Sequence[int]) -> np.ndarray | None:
        """Returns the weights f32 [heads, tokens, S'] of attention to the window that is encoded; None if unknown."""
        ...


@dataclass(frozen=True, slots=True)
class _Decoded:
    """Tokens of a window, without prompt and end; whether the end came; and the mean of log probabilities."""

    tokens: list[int]
    ended: bool
    log_probability: float = 0.0


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

    @property
    def rate(self) -> int:
        """Samples per second."""
        return self.log_mel.rate

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
        """Transcribes mono samples at the extractor's rate.

        Sound longer than a window is cut by the timestamps that the model gives, whether they are asked for or not.

        Args:
            read: begins to read the sound, and returns its samples f32 [samples] in blocks; sound of more than some
                minutes is read twice.
            language: language of the sound; None to detect it.
            task: transcribe or translate.
            timestamps: whether segments are cut by timestamps in a single window, too.
            words: whether words and their times are returned, for which timestamps come.
            on_segment: receives each segment as it comes.
            check: called before each window and each token; its exceptions end the transcription.
            guards: bounds of a window's text.

        Raises:
            InputError: samples are none or not finite, or the model does not have the language or the task, or words
                are asked for and its alignment heads are not known.
        """
        check = check or _go_on
        features = LogMelWindows(self.log_mel, read)
        timestamps = timestamps or words or features.frames > self.log_mel.frames
        rules = TokenRules(self._config, self._model.vocabulary, timestamps=timestamps)
        duration = features.samples / self.log_mel.rate
        prompt: Sequence[int] = ()
        segments: list[Segment] = []
        timed: list[TimedToken] = []
        random = np.random.default_rng(guards.seed)
        seek = 0
        while seek < features.frames:
            window = features.window(seek)
            with self._turns:  # between two windows another transcription may use the model
                check()  # the wait may have been long
                self._model.encode(window[None])
                prompt = prompt or prompt_tokens(self._config, language, task, timestamps, self._detected)
                decoded = self._guarded(prompt, rules, check, guards, random)
                aligned = self._aligned(prompt, decoded) if words and decoded is not None else None
            frames = min(self.log_mel.frames, features.frames - seek)
            if decoded is None:
                seek += frames
                continue
            tokens = decoded.tokens
            cuts, advance = cut_window(tokens, self._config.first_timestamp, frames, timestamps=rules.timestamps)
            for cut in cuts:
                segments.append(self._segment(cut, seek, duration))
                if on_segment is not None:
                    on_segment(segments[-1])
            if aligned is not None:
                kept = tokens[: sum(len(cut.tokens) for cut in cuts)]
                timed += zip(kept, self._times(aligned, decoded, features.samples, seek), strict=False)
            seek += max(1, advance)
        language = self._language(prompt)
        return Transcription(
            text=self._text([token for segment in segments for token in segment.token_ids]),
            segments=tuple(segments),
            language=language,
            task=task,
            duration=duration,
            words=tuple(self._within(word, duration) for word in self._words(timed, language)),
        )

    def _words(self, timed: Sequence[TimedToken], language: str | None) -> list[Word]:
        return words_of(timed, self._config.first_timestamp, self._config.eos, language, self._text)

    def _within(self, word: Word, duration: float) -> Word:
        """Returns a word within the sound: a model may go on behind its end."""
        return replace(word, start=min(word.start, duration), end=min(word.end, duration))

    def _segment(self, cut: Cut, seek: int, duration: float) -> Segment:
        start, end = (min(self._seconds(seek + frame), duration) for frame in (cut.start, cut.stop))
        return Segment(start=start, end=end, text=self._text(cut.tokens), token_ids=tuple(cut.tokens))

    def _seconds(self, frame: int) -> float:
        return frame * self.log_mel.hop / self.log_mel.rate

    def _guarded(
        self,
        prompt: Sequence[int],
        rules: TokenRules,
        check: Callable[[], object],
        guards: Guards,
        random: np.random.Generator,
    ) -> _Decoded | None:
        """Decodes the window that is encoded until its text keeps all bounds; None if the window is silent."""
        silence = 0.0 if guards.most_silence is None else self._silence()
        decoded = _Decoded([], ended=True)
        for temperature in guards.temperatures:
            measured = guards.least_log_probability is not None
            decoded = self._decoded(prompt, rules, check, temperature, random, measured=measured)
            improbable = measured and decoded.log_probability < (guards.least_log_probability or 0.0)
            if improbable and guards.most_silence is not None and silence > guards.most_silence:
                return None
            whole = [*decoded.tokens, *([self._config.eos] if decoded.ended else [])]
            ratio = compression(whole, self._model.vocabulary)
            if not improbable and (guards.most_compression is None or ratio <= guards.most_compression):
                break
        return decoded

    def _silence(self) -> float:
        """Returns the probability that the window that is encoded has no speech.

        Raises:
            InputError: the model has no token for it.
        """
        if self._config.no_timestamps is None:
            raise InputError(
                f"{self._config.where}: no token says that there is no speech (no_timestamps_token_id): give guards "
                "with most_silence=None"
            )
        logits = run_prompt(self._model, [self._config.start]).logits()
        return math.exp(log_probability(logits, self._config.no_timestamps - 1))

    def _aligned(self, prompt: Sequence[int], decoded: _Decoded) -> np.ndarray:
        weights = self._model.align([*prompt, *decoded.tokens])
        if weights is None:
            raise InputError(
                f"{self._config.where}: times of words need the heads that follow words (alignment_heads, of the "
                "decoder's layers), and the entry point align, which an export makes of them: add them and export again"
            )
        rows = len(decoded.tokens) - (not decoded.ended)  # transformers has not fed the last token either
        return weights[:, len(prompt) : len(prompt) + max(0, rows)]

    def _times(self, weights: np.ndarray, decoded: _Decoded, samples: int, seek: int) -> list[float]:
        """Returns the time of each token, in seconds of the sound."""
        hop, window = self.log_mel.hop, self.log_mel.window
        frames = -(-samples // hop) if samples <= window else samples // hop
        times = np.zeros(0, np.float32)
        if weights.shape[1]:
            times = token_times(weights, (frames - seek) // 2, self._config.median_width)
        last = times[-1:] if len(times) else np.zeros(1, np.float32)
        times = np.concatenate([times, last])[: len(decoded.tokens)]
        return [float(time) for time in times + np.float32(self._seconds(seek))]

    def _decoded(
        self,
        prompt: Sequence[int],
        rules: TokenRules,
        check: Callable[[], object],
        temperature: float,
        random: np.random.Generator,
        *,
        measured: bool,
    ) -> _Decoded:
        """Decodes the window that is encoded."""
        limit = self._model.capacity
        if self._config.max_length is not None:
            limit = min(limit, self._config.max_length + len(prompt))
        tokens: list[int] = []
        total = 0.0
        prediction = run_prompt(self._model, prompt)
        while True:
            check()
            scores = rules.scores(prediction.logits(), tokens)
            token = drawn(scores, temperature, random) if temperature else int(np.argmax(scores))
            total += log_probability(scores, token) if measured else 0.0
            if token == self._config.eos:
                return _Decoded(tokens, ended=True, log_probability=total / (len(tokens) + 1))
            tokens.append(token)
            position = len(prompt) + len(tokens)
            if position >= limit:
                return _Decoded(tokens, ended=False, log_probability=total / len(tokens))
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
