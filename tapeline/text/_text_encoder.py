"""Tokens of whole texts for encoders: truncated to the model's length, as transformers' tokenizers do."""

from dataclasses import dataclass
from typing import Final, Literal

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
        unseen: number of tokens at the end that no token attends to.
    """

    ids: list[int]
    types: list[int]
    truncated: int = 0
    unseen: int = 0


@dataclass(frozen=True, slots=True)
class TextTokens:
    """Tokens of a text with their places in it.

    Attributes:
        encoded: ids and types.
        encoding: the same of the library: offsets, words, special tokens, and the tokens of the vocabulary.
    """

    encoded: EncodedText
    encoding: tokenizers.Encoding


Truncation = Literal["longest_first", "only_first"]
"""Text of a pair that loses tokens if the pair is longer than the model reads."""


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
        self._cuts: Final[dict[Truncation, tokenizers.Tokenizer]] = {}
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

    @checked_choices
    def encode_pair(
        self, first: str, second: str, model_size: int, truncation: Truncation = "longest_first"
    ) -> EncodedText:
        """Returns the tokens of a pair of texts.

        Args:
            first: a text.
            second: another one.
            model_size: the model's vocabulary V; every id must be below it.
            truncation: text that loses tokens.

        Raises:
            InputError: as for ``encode``; or the second text alone is too long, and the first one is truncated.
            CheckpointError: as for ``encode``.
        """
        return self._encoded(first, second, model_size, truncation)

    def encode_tokens(self, text: str, model_size: int) -> TextTokens:
        """Returns the tokens of a text with their places in it.

        Args:
            text: the text.
            model_size: the model's vocabulary V; every id must be below it.

        Raises:
            InputError: as for ``encode``.
            CheckpointError: as for ``encode``.
        """
        encoding, whole = self._encoding(text, None, "longest_first")
        return TextTokens(self._checked(encoding, whole, text, model_size), encoding)

    def encode_windows(
        self, question: str, context: str, model_size: int, *, most: int, stride: int
    ) -> list[TextTokens]:
        """Returns the tokens of a question with each window of a context.

        Args:
            question: first text.
            context: second text.
            model_size: the model's vocabulary V; every id must be below it.
            most: the most tokens of a pair.
            stride: the number of tokens of the context that two windows share; fewer if a window has no more.

        Raises:
            InputError: as for ``encode``; or no token of a context fits beside the question.
            CheckpointError: as for ``encode``.
        """
        most = most if self.max_tokens is None else min(most, self.max_tokens)
        room = most - len(self._encoding(question, "", None)[0].ids)
        if room < 1:
            raise InputError(
                f"the question {question[:40]!r} has {most - room} tokens, the model reads {most} of a question and "
                "its context: shorten the question"
            )
        with library_errors(f"{self._path} cannot encode a text", _COPY):
            cut = tokenizers.Tokenizer.from_str(self._whole.to_str())
            cut.enable_truncation(most, stride=min(stride, room - 1), strategy="only_second")
            first = encoding_of(cut, question, context)
        return [
            TextTokens(self._checked(one, len(one.ids), context, model_size), one)
            for one in (first, *first.overflowing)
        ]

    def joined(self, names: list[str]) -> str:
        """Returns the text of tokens of the vocabulary."""
        decoder = self._whole.decoder
        return " ".join(names) if decoder is None else decoder.decode(names)

    @property
    def marks_parts(self) -> bool:
        """True if the vocabulary marks the tokens that continue a word."""
        return bool(getattr(self._whole.model, "continuing_subword_prefix", None))

    def id_of(self, token: str | None) -> int | None:
        """Returns the id of a token; None if there is none."""
        return None if token is None else self._whole.token_to_id(token)

    def prompt_tokens(self, prompt: str, model_size: int) -> int:
        """Returns the number of tokens of a prompt before a text, without a special token at its end."""
        ids = self.encode(prompt, model_size).ids
        return len(ids) - (ids[-1] in self._special)

    def _cut(self, strategy: Truncation) -> tokenizers.Tokenizer:
        """Returns a tokenizer that truncates; made when the first long text comes, for large vocabularies take time."""
        if strategy not in self._cuts:
            inner = tokenizers.Tokenizer.from_str(self._whole.to_str())
            inner.enable_truncation(self.max_tokens or 1, strategy=strategy, direction=self._direction)
            self._cuts[strategy] = inner
        return self._cuts[strategy]

    def _encoded(
        self, first: str, second: str | None, model_size: int, strategy: Truncation = "longest_first"
    ) -> EncodedText:
        encoding, whole = self._encoding(first, second, strategy)
        return self._checked(encoding, whole, first, model_size)

    def _encoding(self, first: str, second: str | None, strategy: Truncation | None) -> tuple[tokenizers.Encoding, int]:
        """Returns the tokens of a text or a pair, and their number before it was truncated; None truncates nothing."""
        for text in (first, second or ""):
            _check_unicode(text)
        with library_errors(f"{self._path} cannot encode a text", _COPY):
            encoding = encoding_of(self._whole, first, second)
            whole = len(encoding.ids)
            if strategy is None or self.max_tokens is None or whole <= self.max_tokens:
                return encoding, whole
            if strategy == "only_first" and second is not None:
                self._check_second(second, len(encoding_of(self._whole, "", second).ids))
            return encoding_of(self._cut(strategy), first, second), whole

    def _check_second(self, second: str, tokens: int) -> None:
        """Checks that a text leaves place for another one."""
        if self.max_tokens is not None and tokens >= self.max_tokens:
            raise InputError(
                f"{second[:40]!r} has {tokens} tokens, the model reads {self.max_tokens} of it and another text: "
                "shorten it"
            )

    def _checked(self, encoding: tokenizers.Encoding, whole: int, text: str, model_size: int) -> EncodedText:
        if not encoding.ids:
            raise InputError(f"the text {text!r} gives no token with {self._path}: give a longer text")
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
