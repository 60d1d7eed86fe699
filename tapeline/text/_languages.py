"""Languages of translation: tokens of a source, and the token that names an answer's language."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from lang_core import InputError, near_names
from tapeline.text._assembly import TOKENIZER_CONFIG, read_object
from tapeline.text._tokenizer import Tokenizer
from tapeline.text._tokenizer_classes import class_of_model

_CONFIG: Final = "config.json"
_MOST: Final = 8


@dataclass(frozen=True, slots=True)
class _Languages:
    """Languages of a tokenizer's class.

    Attributes:
        default: language of a source if nobody names one; None for none.
        before: whether the language's token comes before a text, or else behind its end.
        starts: whether the answer's language is the decoder's first token, or else the token behind it.
        written: form of a language's token, with ``{}`` for its name.
    """

    default: str | None
    before: bool = True
    starts: bool = False
    written: str = "{}"


_CLASSES: Final[Mapping[str, _Languages]] = MappingProxyType(
    {
        "NllbTokenizer": _Languages("eng_Latn"),
        "MBart50Tokenizer": _Languages("en_XX"),
        "MBartTokenizer": _Languages("en_XX", before=False, starts=True),
        "M2M100Tokenizer": _Languages("en", written="__{}__"),
        "PLBartTokenizer": _Languages(None, before=False, starts=True, written="__{}__"),
    }
)


class Translation:
    """Tokens of the sources of an encoder-decoder, and its languages.

    Args:
        directory: of the model or the bundle.
        tokenizer: of the directory.
    """

    def __init__(self, directory: Path, tokenizer: Tokenizer) -> None:
        config, model = read_object(directory / TOKENIZER_CONFIG), read_object(directory / _CONFIG)
        named = config.get("tokenizer_class")
        name = named.removesuffix("Fast") if isinstance(named, str) else class_of_model(model.get("model_type"))
        self._languages: Final = _CLASSES.get(name or "")
        self._tokenizer: Final = tokenizer
        self._config: Final[Mapping[str, Any]] = config

    def source(self, text: str, language: str | None, vocabulary: int) -> list[int]:
        """Returns the tokens of a source.

        Args:
            text: the text.
            language: its language; None for the one of the tokenizer's files, or transformers' default.
            vocabulary: number of the encoder's tokens.

        Raises:
            InputError: the tokenizer has no such language, or none at all, or as for ``Tokenizer.encode``.
        """
        languages = self._known("source_language", language)
        if languages is None:
            return self._tokenizer.encode(text, vocabulary)
        stated = self._config.get("src_lang")
        chosen = language or (stated if isinstance(stated, str) else languages.default)
        if chosen is None:
            return self._tokenizer.encode(text, vocabulary)
        token, end = self._token("source_language", chosen), self._end()
        ids = self._tokenizer.encode(text, vocabulary, special_tokens=False)
        before = languages.before and self._config.get("legacy_behaviour") is not True
        return [token, *ids, end] if before else [*ids, end, token]

    def target(self, language: str | None) -> tuple[int | None, int | None]:
        """Returns the decoder's first token and the answer's first token, each if a language names it.

        Raises:
            InputError: the tokenizer has no such language, or none at all.
        """
        languages = self._known("target_language", language)
        if language is None or languages is None:
            return None, None
        token = self._token("target_language", language)
        return (token, None) if languages.starts else (None, token)

    def _known(self, name: str, language: str | None) -> _Languages | None:
        if language is not None and self._languages is None:
            raise InputError(
                f"{name}={language!r}: the tokenizer of {self._tokenizer.path} has no languages: leave it out; some "
                "models take the language as words of the text"
            )
        return self._languages

    def _token(self, name: str, language: str) -> int:
        assert self._languages is not None
        written = self._languages.written.format(language)
        token = self._tokenizer.special_id(written)
        token = self._tokenizer.special_id(language) if token is None else token
        if token is None:
            head, tail = self._languages.written.split("{}")
            known = sorted(
                text[len(head) : len(text) - len(tail)]
                for text in self._tokenizer.special_tokens() - {*self._tokenizer.tokens.values()}
                if text.startswith(head) and text.endswith(tail)
            )
            shown = f"{', '.join(known[:_MOST])}{', ...' if len(known) > _MOST else ''}" or "none"
            raise InputError(
                f"{name}={language!r} is no language of {self._tokenizer.path}; known are {shown}"
                f"{near_names(language, known)}"
            )
        return token

    def _end(self) -> int:
        end = self._tokenizer.eos_id()
        if end is None:
            raise InputError(f"{self._tokenizer.path} names no eos_token, which ends a source: copy its files again")
        return end
