"""Rules of answers of encoder-decoders: how transformers' ``generate`` begins, holds and ends them.

They are those of generation_config.json, or without that file of config.json with the defaults of the model's type, in
the order of transformers 5.23 (``generation/utils.py``, ``generation/logits_process.py``).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NoReturn

import numpy as np

from generation._filters import Scores, penalized
from generation._model_files import CONFIG_FILE, GENERATION_FILE, read_object
from lang_core import ConfigError, checked_choices

EarlyStopping = bool | Literal["never"]
"""When beam search ends: True once there are as many answers as beams, False by a bound, "never" by the exact bound."""

_MOST_BEAMS: Final = 64
_STARTS: Final = ("decoder_start_token_id", "bos_token_id")
# Defaults of transformers' configurations, for files that lack the fields.
_TYPES: Final[Mapping[str, Mapping[str, int]]] = {
    "bart": {"forced_eos_token_id": 2, "eos_token_id": 2, "bos_token_id": 0, "decoder_start_token_id": 2},
    "led": {"eos_token_id": 2, "bos_token_id": 0, "decoder_start_token_id": 2},
    "mbart": {"forced_eos_token_id": 2, "eos_token_id": 2, "bos_token_id": 0},
    "plbart": {"forced_eos_token_id": 2, "eos_token_id": 2, "bos_token_id": 0},
    "pegasus": {"forced_eos_token_id": 1, "eos_token_id": 1, "decoder_start_token_id": 0},
    "marian": {"forced_eos_token_id": 0, "eos_token_id": 0, "decoder_start_token_id": 58100},
    "m2m_100": {"eos_token_id": 2, "bos_token_id": 0, "decoder_start_token_id": 2},
    "blenderbot": {
        "forced_eos_token_id": 2,
        "eos_token_id": 2,
        "bos_token_id": 1,
        "decoder_start_token_id": 1,
        "encoder_no_repeat_ngram_size": 3,
    },
    "blenderbot-small": {
        "forced_eos_token_id": 2,
        "eos_token_id": 2,
        "bos_token_id": 1,
        "decoder_start_token_id": 1,
    },
    "t5": {"eos_token_id": 1, "decoder_start_token_id": 0},
    "t5gemma": {"eos_token_id": 1, "bos_token_id": 2},
    "mt5": {"eos_token_id": 1, "decoder_start_token_id": 0},
    "umt5": {"eos_token_id": 1, "decoder_start_token_id": 0},
}
# Settings that change answers and are not supported, with the values that leave them alone.
_NEUTRAL: Final[Mapping[str, tuple[Any, ...]]] = {
    "num_beam_groups": (1,),
    "diversity_penalty": (0.0,),
    "penalty_alpha": (0.0,),
    "constraints": (),
    "force_words_ids": (),
    "sequence_bias": (),
    "encoder_repetition_penalty": (1.0,),
    "exponential_decay_length_penalty": (),
    "guidance_scale": (1.0,),
    "typical_p": (1.0,),
    "epsilon_cutoff": (0.0,),
    "eta_cutoff": (0.0,),
    "top_h": (),
    "forced_decoder_ids": (),
    "stop_strings": (),
    "watermarking_config": (),
    "dola_layers": (),
}


@checked_choices
@dataclass(frozen=True, kw_only=True)
class AnswerRules:
    """Rules of answers.

    Attributes:
        start: first token of the decoder.
        ends: tokens that end an answer.
        beams: number of beams; 1 takes token by token.
        length_penalty: exponent of an answer's length, by which the sum of its log-probabilities is divided.
        early_stopping: when beam search ends.
        forced_first: token that every answer begins with; None for none.
        forced_last: tokens, of which an answer that is cut off ends with one.
        min_length: tokens, the first of the decoder counted, before which no answer ends.
        max_length: tokens of the decoder; None if the files do not say it.
        ngram: length of token sequences that an answer has at most once; 0 is off.
        source_ngram: length of token sequences of the source that an answer has not; 0 is off.
        bad_words: token sequences that an answer has not.
        suppressed: tokens that an answer has not.
        first_suppressed: tokens that an answer does not begin with.
        repetition_penalty: divisor of positive and factor of negative scores of tokens seen before.
    """

    start: int
    ends: tuple[int, ...]
    beams: int = 1
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = False
    forced_first: int | None = None
    forced_last: tuple[int, ...] = ()
    min_length: int = 0
    max_length: int | None = None
    ngram: int = 0
    source_ngram: int = 0
    bad_words: tuple[tuple[int, ...], ...] = ()
    suppressed: tuple[int, ...] = ()
    first_suppressed: tuple[int, ...] = ()
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        if not _is_count(self.beams) or not 1 <= self.beams <= _MOST_BEAMS:
            raise ConfigError(f"num_beams={self.beams!r:.80}: expected an integer of 1 to {_MOST_BEAMS}")
        if not _is_number(self.length_penalty):
            raise ConfigError(f"length_penalty={self.length_penalty!r:.80}: expected a finite number")

    @property
    def masks(self) -> bool:
        """True if some rule forbids tokens."""
        numbers = self.min_length > 1, self.ngram, self.source_ngram
        return any(numbers) or any(
            (
                self.forced_first is not None,
                self.forced_last,
                self.bad_words,
                self.suppressed,
                self.first_suppressed,
            )
        )

    @classmethod
    def read(cls, directory: Path) -> "AnswerRules":
        """Reads the rules of a model's directory or a bundle.

        Raises:
            ConfigError: a file is damaged, a value is of the wrong type, or a setting is not supported; names it.
        """
        config = read_object(directory / CONFIG_FILE)
        path = directory / GENERATION_FILE
        defaults = _TYPES.get(str(config.get("model_type")), {})
        stated = {name: value for name, value in config.items() if value is not None}
        known: Mapping[str, Any] = {**defaults, **stated, **_nulls(config, "forced_eos_token_id")}
        if not path.exists():
            return _Fields(known, directory / CONFIG_FILE).rules(known)
        return _Fields(read_object(path), path).rules(known)


class _Fields:
    """Fields of a file, read with checks that name the field."""

    def __init__(self, values: Mapping[str, Any], where: Path) -> None:
        self._values: Final = values
        self._where: Final = where

    def rules(self, config: Mapping[str, Any]) -> AnswerRules:
        """Returns the rules; ``config`` has the tokens that the file does not name."""
        for name, neutral in _NEUTRAL.items():
            value = self._values.get(name)
            if value is not None and value not in (*neutral, [], {}, False):
                self._refuse(name, "no such field: this setting is not supported")
        starts = ("decoder_start_token_id", "bos_token_id")
        start: Any = next((value for name in starts if (value := self._values.get(name)) is not None), None)
        start = (
            next((config[name] for name in starts if config.get(name) is not None), None) if start is None else start
        )
        if isinstance(start, list) or not _is_count(start):
            self._refuse(starts[0], "a token id, with which answers begin")
        ends = self.ids("eos_token_id") or _Fields(config, self._where).ids("eos_token_id")
        forced = self.ids("forced_bos_token_id")
        if len(forced) > 1:
            self._refuse("forced_bos_token_id", "one token id")
        early = self._values.get("early_stopping")
        if early not in (None, True, False, "never"):
            self._refuse("early_stopping", "true, false or 'never'")
        return AnswerRules(
            start=start,
            ends=ends,
            beams=self.number("num_beams", 1, whole=True),
            length_penalty=self.number("length_penalty", 1.0),
            early_stopping=early or False,
            forced_first=forced[0] if forced else None,
            forced_last=self.ids("forced_eos_token_id"),
            min_length=self.min_length(),
            max_length=self.number("max_length", 0, whole=True) or None,
            ngram=self.number("no_repeat_ngram_size", 0, whole=True),
            source_ngram=self.number("encoder_no_repeat_ngram_size", 0, whole=True),
            bad_words=self.bad_words(ends),
            suppressed=self.ids("suppress_tokens"),
            first_suppressed=self.ids("begin_suppress_tokens"),
            repetition_penalty=self.number("repetition_penalty", 1.0),
        )

    def ids(self, name: str) -> tuple[int, ...]:
        """Returns the token ids of a field that may have one or several."""
        value = self._values.get(name)
        listed: list[Any] = [] if value is None else value if isinstance(value, list) else [value]
        if not all(map(_is_count, listed)):
            self._refuse(name, "a token id, a list of token ids or null")
        return tuple(listed)

    def number(self, name: str, default: float, *, whole: bool = False) -> Any:
        """Returns the number of a field."""
        value = self._values.get(name)
        value = default if value is None else value
        if not (_is_count(value) if whole else _is_number(value)):
            self._refuse(name, "an integer of at least 0" if whole else "a finite number")
        return value

    def min_length(self) -> int:
        """Returns the least number of the decoder's tokens; ``min_new_tokens`` does not count the first."""
        new = self.number("min_new_tokens", 0, whole=True)
        return max(self.number("min_length", 0, whole=True), new + 1 if new else 0)

    def bad_words(self, ends: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Returns the token sequences of ``bad_words_ids``, without those that are an end."""
        words = self._values.get("bad_words_ids") or []
        if not isinstance(words, list) or not all(
            isinstance(word, list) and word and all(map(_is_count, word)) for word in words
        ):
            self._refuse("bad_words_ids", "a list of lists of token ids")
        return tuple(tuple(word) for word in words if word not in [[end] for end in ends])

    def _refuse(self, name: str, expected: str) -> NoReturn:
        raise ConfigError(f"{self._where}: field {name!r}: expected {expected}; found {self._values.get(name)!r:.80}")


class AnswerScores:
    """Scores of the next token of an answer under the rules.

    Args:
        rules: the rules.
        source: tokens of the source.
        limit: greatest number of the decoder's tokens.
    """

    def __init__(self, rules: AnswerRules, source: Sequence[int], limit: int) -> None:
        self._rules: Final = rules
        self._limit: Final = limit
        self._source: Final = _ngrams(source, rules.source_ngram)

    def __call__(self, scores: Scores, tokens: Sequence[int], *, penalize: bool = True) -> Scores:
        """Returns scores ``[V]`` float32: -inf for forbidden tokens, 0 for forced ones.

        Args:
            scores: logits or log-probabilities ``[V]`` float32.
            tokens: tokens of the decoder so far, the first one included.
            penalize: whether the penalty of repetitions counts.
        """
        rules, count = self._rules, len(tokens)
        scores = scores.copy()
        if penalize and rules.repetition_penalty != 1:
            scores = penalized(scores, tokens, rules.repetition_penalty)
        for size, known in ((rules.ngram, None), (rules.source_ngram, self._source)):
            if size and (known is not None or count + 1 >= size):
                ngrams = _ngrams(tokens, size) if known is None else known
                _forbid(scores, ngrams.get(tuple(tokens[max(0, count + 1 - size) : count]), ()))
        _forbid(scores, [word[-1] for word in rules.bad_words if tuple(tokens[count - len(word) + 1 :]) == word[:-1]])
        if count < rules.min_length:
            _forbid(scores, rules.ends)
        if count == 1 and rules.forced_first is not None:
            _force(scores, [rules.forced_first])
        if rules.forced_last and count == self._limit - 1:
            _force(scores, rules.forced_last)
        _forbid(scores, rules.suppressed)
        if count == (1 if rules.forced_first is None else 2):
            _forbid(scores, rules.first_suppressed)
        return scores


def _ngrams(tokens: Sequence[int], size: int) -> dict[tuple[int, ...], list[int]]:
    """Returns the tokens that follow each sequence of ``size`` - 1 tokens."""
    following: dict[tuple[int, ...], list[int]] = {}
    for end in range(size, len(tokens) + 1) if size else ():
        following.setdefault(tuple(tokens[end - size : end - 1]), []).append(tokens[end - 1])
    return following


def _forbid(scores: Scores, tokens: Sequence[int]) -> None:
    scores[[token for token in tokens if token < scores.shape[0]]] = -np.inf


def _force(scores: Scores, tokens: Sequence[int]) -> None:
    scores[:] = -np.inf
    scores[[token for token in tokens if token < scores.shape[0]]] = 0


def _nulls(config: Mapping[str, Any], *names: str) -> dict[str, None]:
    """Returns fields that a file sets to null, where a default would count otherwise."""
    return {name: None for name in names if name in config and config[name] is None}


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
