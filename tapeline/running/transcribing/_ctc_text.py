"""Text of a CTC model's frames: the vocabulary of a ``Wav2Vec2CTCTokenizer``, and where characters and words lie."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from lang_core import ConfigError, checked_choices
from tapeline.text import CTC_TOKENIZERS, without_spaces
from transformer_core import ConfigFields, config_fields

_VOCABULARY: Final = "vocab.json"
_CONFIG: Final = "tokenizer_config.json"
_SPECIAL: Final = "special_tokens_map.json"
_ADDED: Final = "added_tokens.json"
_REMEDY: Final = "it says which character each result stands for: copy it from the model's source, and export again"


@dataclass(frozen=True, slots=True)
class FrameSpan:
    """Text of some frames.

    Attributes:
        text: the characters.
        start: first frame.
        stop: frame behind the last one.
    """

    text: str
    start: int
    stop: int


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class CtcVocabulary:
    """Characters of a CTC model.

    Attributes:
        tokens: text of each result by its index.
        blank: text of the blank, which is left out.
        unknown: text of a result that has none.
        delimiter: text that ends a word, as tokenizer_config.json says; transformers 5 takes ``|`` all the same.
        space: what stands for it in a text.
        lowers: whether texts are written in lower case.
        cleans: whether spaces before punctuation are removed.
    """

    tokens: dict[int, str]
    blank: str
    unknown: str
    delimiter: str
    space: str
    lowers: bool
    cleans: bool

    @classmethod
    def load(cls, directory: Path) -> "CtcVocabulary":
        """Reads the vocabulary of a checkpoint or a bundle.

        Raises:
            ConfigError: a file is missing, damaged, or another tokenizer's.
        """
        settings = _optional(directory / _CONFIG)
        special = _optional(directory / _SPECIAL)
        fields = ConfigFields({**special.values, **settings.values}, settings.where)
        fields.choice("tokenizer_class", CTC_TOKENIZERS, CTC_TOKENIZERS[0])
        entries = config_fields(str(directory / _VOCABULARY), _REMEDY)
        language = fields.values.get("target_lang")
        if language is not None:
            entries = entries.object(str(language))
        added = {**_optional(directory / _ADDED).values}
        for number, token in _stored_tokens(fields).items():
            added.setdefault(token, number)
        return cls(
            tokens={**_numbered(added, fields.where), **_numbered(entries.values, entries.where)},
            blank=_token(fields, "pad_token", "<pad>"),
            unknown=_token(fields, "unk_token", "<unk>"),
            delimiter=_token(fields, "word_delimiter_token", "|"),
            space=_token(fields, "replace_word_delimiter_char", " "),
            lowers=fields.boolean("do_lower_case", False),
            cleans=fields.boolean("clean_up_tokenization_spaces", False),
        )

    def characters(self, ids: Sequence[int]) -> list[FrameSpan]:
        """Returns the characters of the results of frames; repeated ones are one, and blanks are left out."""
        spans: list[FrameSpan] = []
        start = 0
        for token, frames in groupby(self.tokens.get(number, self.unknown) for number in ids):
            stop = start + sum(1 for _ in frames)
            if token != self.blank:
                spans.append(FrameSpan(self.space if token == self.delimiter else token, start, stop))
            start = stop
        return spans

    def text(self, characters: Sequence[FrameSpan]) -> str:
        """Returns the text of characters."""
        text = "".join(span.text for span in characters).strip()
        text = text.lower() if self.lowers else text
        return without_spaces(text) if self.cleans else text

    def words(self, characters: Sequence[FrameSpan]) -> list[FrameSpan]:
        """Returns the words of characters, as transformers' pipeline: in the case of the vocabulary."""
        words: list[FrameSpan] = []
        for spaces, group in groupby(characters, key=lambda span: span.text == self.space):
            if not spaces:
                spans = list(group)
                words.append(FrameSpan("".join(span.text for span in spans), spans[0].start, spans[-1].stop))
        return words


def _optional(path: Path) -> ConfigFields:
    return config_fields(str(path), _REMEDY) if path.exists() else ConfigFields({}, str(path))


def _stored_tokens(fields: ConfigFields) -> dict[int, str]:
    """Returns the tokens of ``added_tokens_decoder`` by their numbers."""
    entries = fields.values.get("added_tokens_decoder") or {}
    if not isinstance(entries, dict) or not all(str(number).isdecimal() for number in entries):
        fields.refuse("added_tokens_decoder", "tokens by their numbers")
    return {int(number): _text_of(entry) for number, entry in entries.items()}


def _numbered(entries: Any, where: str) -> dict[int, str]:
    for text, number in entries.items():
        if type(number) is not int or number < 0:
            raise ConfigError(f"{where}: {text!r}: expected a number of 0 or more; found {json.dumps(number)[:80]}")
    return {number: text for text, number in entries.items()}


def _token(fields: ConfigFields, name: str, default: str) -> str:
    value = fields.values.get(name)
    return default if value is None else _text_of(value)


def _text_of(value: Any) -> str:
    return str(value.get("content", "")) if isinstance(value, dict) else str(value)
