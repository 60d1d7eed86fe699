"""Settings of a speech model: which tokens begin and end a transcription, and which must not come."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lang_core import checked_choices
from transformer_core import ConfigFields, config_fields

_CONFIG_FILE: Final = "config.json"
_GENERATION_FILE: Final = "generation_config.json"
_REMEDY: Final = "it says which tokens begin a transcription: copy it from the model's source, and export again"


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechConfig:
    """Settings of a Whisper, from generation_config.json and, if that is silent, config.json.

    Attributes:
        where: file that messages name.
        start: token that every prompt begins with.
        eos: token that ends a transcription.
        no_timestamps: token that announces text without timestamps; None of a model that has none.
        first_timestamp: token of the timestamp 0, from which on all tokens are timestamps; V if there are none.
        languages: token of each language, by names such as ``<|en|>``; empty if the model has none.
        tasks: token of each task; empty if the model has none.
        multilingual: False of a model for English alone.
        language: language if none is asked for; None to detect it.
        forced: tokens that follow ``start`` in older files; None in place of the language.
        suppressed: tokens that never come.
        first_suppressed: tokens that do not come first.
        latest_first: highest first timestamp, in positions of the encoder; None for any.
        max_length: largest number of tokens of a window, prompt not counted; None for as many as fit.
        median_width: positions of the median filter of times of words.
    """

    where: str
    start: int
    eos: int
    no_timestamps: int | None
    first_timestamp: int
    languages: Mapping[str, int]
    tasks: Mapping[str, int]
    multilingual: bool
    language: str | None
    forced: tuple[int | None, ...]
    suppressed: tuple[int, ...]
    first_suppressed: tuple[int, ...]
    latest_first: int | None
    max_length: int | None
    median_width: int

    @classmethod
    def load(cls, directory: Path, vocabulary: int) -> "SpeechConfig":
        """Reads the settings of a bundle or a checkpoint.

        Args:
            directory: holds config.json and generation_config.json.
            vocabulary: V, below which every token is.

        Raises:
            ConfigError: a file is missing or damaged, or a field is of the wrong type or names a token beyond V.
        """
        base = config_fields(str(directory / _CONFIG_FILE), _REMEDY)
        generation = config_fields(str(directory / _GENERATION_FILE), _REMEDY)
        present = {name: value for name, value in generation.values.items() if value is not None}
        reader = _Tokens(ConfigFields({**base.values, **present}, generation.where), vocabulary)
        fields = reader.fields
        silent = reader.token("no_timestamps_token_id") if fields.has("no_timestamps_token_id") else None
        return cls(
            where=generation.where,
            start=reader.token("decoder_start_token_id"),
            eos=reader.token("eos_token_id"),
            no_timestamps=silent,
            first_timestamp=vocabulary if silent is None else silent + 1,
            languages=reader.table("lang_to_id"),
            tasks=reader.table("task_to_id"),
            multilingual=fields.boolean("is_multilingual", True),
            language=reader.text("language"),
            forced=reader.forced("forced_decoder_ids"),
            suppressed=reader.tokens("suppress_tokens"),
            first_suppressed=reader.tokens("begin_suppress_tokens"),
            latest_first=_optional(fields, "max_initial_timestamp_index"),
            max_length=_optional(fields, "max_length"),
            median_width=_odd(fields, "median_filter_width", 7),
        )


class _Tokens:
    """Reads fields that hold tokens."""

    def __init__(self, fields: ConfigFields, vocabulary: int) -> None:
        self.fields: Final = fields
        self._vocabulary: Final = vocabulary

    def token(self, name: str) -> int:
        """Reads one token, or a list of one."""
        given = self.fields.values.get(name)
        value: Any = given[0] if isinstance(given, list) and len(given) == 1 else given
        if not self._is_token(value):
            self.fields.refuse(name, self._expected("a token"))
        return value

    def tokens(self, name: str) -> tuple[int, ...]:
        """Reads a list of tokens; none if the field is absent."""
        values = self.fields.values.get(name) or []
        if not isinstance(values, list) or not all(map(self._is_token, values)):
            self.fields.refuse(name, self._expected("a list of tokens"))
        return tuple(values)

    def table(self, name: str) -> Mapping[str, int]:
        """Reads tokens by their names; none if the field is absent."""
        values = self.fields.values.get(name) or {}
        if not isinstance(values, dict) or not all(map(self._is_token, values.values())):
            self.fields.refuse(name, self._expected("an object of tokens"))
        return values

    def forced(self, name: str) -> tuple[int | None, ...]:
        """Reads pairs of a position and a token or null, from position 1 on."""
        values = self.fields.values.get(name) or []
        pairs = (
            [pair for pair in values if isinstance(pair, list) and len(pair) == 2] if isinstance(values, list) else []
        )
        tokens = [token for place, (position, token) in enumerate(pairs, 1) if position == place]
        whole = isinstance(values, list) and len(tokens) == len(values)
        if not whole or not all(token is None or self._is_token(token) for token in tokens):
            self.fields.refuse(name, self._expected("pairs of a position, counted from 1, and a token or null"))
        return tuple(tokens)

    def text(self, name: str) -> str | None:
        """Reads a text; None if the field is absent."""
        value = self.fields.values.get(name)
        if value is not None and not isinstance(value, str):
            self.fields.refuse(name, "a text")
        return value

    def _is_token(self, value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < self._vocabulary

    def _expected(self, kind: str) -> str:
        return f"{kind}, each below the vocabulary's size ({self._vocabulary})"


def _odd(fields: ConfigFields, name: str, default: int) -> int:
    value = fields.integer(name, default)
    if value % 2 == 0 or value > _WIDEST:
        fields.refuse(name, f"an odd number up to {_WIDEST}")
    return value


_WIDEST: Final = 1001


def _optional(fields: ConfigFields, name: str) -> int | None:
    return fields.integer(name, minimum=0) if fields.has(name) else None
