"""Tokens of whole texts for encoders: truncated to the model's length, as transformers' tokenizers do."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import tokenizers
from tokenizers import normalizers

from lang_core import InputError, checked_choices
from tapeline.text._ids import check_ids
from tapeline.text._library import encoding_of, library_errors
from tapeline.text._tokenizer import Tokenizer

_COPY: Final = "it is damaged: copy it again from the model's source"


@dataclass(frozen=True, slots=True)
class EncodedText:
    """Tokens of a text, or of a pair of texts.

    Attributes:
        ids: token ids, special tokens included.
        types: type of each token: 1 for the second text of a pair if the model tells them apart.
        truncated: number of tokens that were cut off because the text is longer than the model reads.
    """

    ids: list[int]
    types: list[int]
    truncated: int = 0


@checked_choices
class TextEncoder:
    """Tokenizer of texts that a model reads as a whole.

    Attributes:
        max_tokens: the most tokens of a text, special tokens included; None if texts are not truncated.
    """

    def __init__(
        self, tokenizer: Tokenizer, max_tokens: int | None, *, lower_case: bool = False, from_left: bool = False
    ) -> None:
        """Copies the tokenizer; the original is not changed.

        Args:
            tokenizer: the tokenizer.
            max_tokens: as the attribute.
            lower_case: whether texts are lowercased before anything else, unless the tokenizer does so itself.
            from_left: whether the beginning of a long text is cut off, and not its end.

        Raises:
            CheckpointError: the tokenizer cannot be copied.
        """
        self.max_tokens: Final = max_tokens
        self._path: Final = tokenizer.path
        self._size: Final = tokenizer.vocabulary_size
        self._direction: Final = "left" if from_left else "right"
        with library_errors(f"{self._path} cannot be read again", _COPY):
            self._whole: Final = tokenizers.Tokenizer.from_str(tokenizer.serialized())
            self._whole.no_padding()
            self._whole.no_truncation()
            if lower_case:
                _lowercase(self._whole)
        added = self._whole.get_added_tokens_decoder()
        self._special: Final = frozenset(one for one, token in added.items() if token.special)

    def encode(self, text: str, model_size: int) -> EncodedText:
        """Returns the tokens of a text.

        Args:
            text: the text.
            model_size: the model's vocabulary V; every id must be below it.

        Raises:
            InputError: the text is not valid Unicode, has zero tokens, or has an id that the model lacks.
            CheckpointError: the tokenizer is damaged, so that the library fails.
        """
        return self._encoded(text, None, model_size)

    def encode_pair(self, first: str, second: str, model_size: int) -> EncodedText:
        """Returns the tokens of a pair of texts; the longer one is truncated first.

        Args:
            first: a text.
            second: another one.
            model_size: the model's vocabulary V; every id must be below it.

        Raises:
            InputError: as for ``encode``.
            CheckpointError: as for ``encode``.
        """
        return self._encoded(first, second, model_size)

    def prompt_tokens(self, prompt: str, model_size: int) -> int:
        """Returns the number of tokens of a prompt before a text, without a special token at its end."""
        ids = self.encode(prompt, model_size).ids
        return len(ids) - (ids[-1] in self._special)

    @cached_property
    def _cut(self) -> tokenizers.Tokenizer:
        """Tokenizer that truncates; made when the first long text comes, for large vocabularies take time to read."""
        inner = tokenizers.Tokenizer.from_str(self._whole.to_str())
        inner.enable_truncation(self.max_tokens or 1, strategy="longest_first", direction=self._direction)
        return inner

    def _encoded(self, first: str, second: str | None, model_size: int) -> EncodedText:
        for text in (first, second or ""):
            _check_unicode(text)
        with library_errors(f"{self._path} cannot encode a text", _COPY):
            encoding = encoding_of(self._whole, first, second)
            whole = len(encoding.ids)
            if self.max_tokens is not None and whole > self.max_tokens:
                encoding = encoding_of(self._cut, first, second)
        if not encoding.ids:
            raise InputError(f"the text {first!r} gives no token with {self._path}: give a longer text")
        check_ids(encoding.ids, model_size, f"a text, encoded with {self._path} ({self._size} entries),")
        return EncodedText(list(encoding.ids), list(encoding.type_ids), whole - len(encoding.ids))


def _lowercase(inner: tokenizers.Tokenizer) -> None:
    """Puts a Lowercase before the normalizer, unless there is one."""
    normalizer = inner.normalizer
    steps = [] if normalizer is None else [normalizer]
    if isinstance(normalizer, normalizers.Sequence):
        steps = [normalizer[index] for index in range(len(normalizer))]
    if not any(isinstance(step, normalizers.Lowercase) for step in steps):
        inner.normalizer = normalizers.Sequence([normalizers.Lowercase(), *steps])


def _check_unicode(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"the text is not valid UTF-8 (character {error.start} is {text[error.start]!a}): remove that character"
        ) from error
