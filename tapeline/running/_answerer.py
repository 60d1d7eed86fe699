"""Answers to questions that are spans of a text, with a bundle of a model that finds answers."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import tokenizers

from lang_core import InputError, checked_choices
from runtime import Session
from tapeline.bundle import Bundle
from tapeline.running._calls import TextCalls
from tapeline.text import TextEncoder, TextTokens, Tokenizer

_MOST: Final = 384  # tokens of a window, and those that two share, as in transformers
_STRIDE: Final = 128
_HIDDEN: Final = -10000.0  # logit of a token that is no part of the context


@dataclass(frozen=True, slots=True)
class Answer:
    """Span of a context that answers a question.

    Attributes:
        text: the answer; empty if the context has none.
        score: probability of the span.
        start: its first character in the context.
        end: the one behind its last.
    """

    text: str
    score: float
    start: int
    end: int


class QuestionAnswerer:
    """Bundle of a model that finds answers, in a session."""

    def __init__(self, bundle: Bundle, session: Session, tokenizer: Tokenizer) -> None:
        """Checks that the bundle finds answers.

        Raises:
            InputError: it does not.
            ConfigError: its files are damaged, or say what is not supported.
        """
        self._calls = TextCalls(
            bundle,
            session,
            ("start_logits", "end_logits"),
            "answers no questions",
            "export a model ForQuestionAnswering",
        )
        self._encoder = TextEncoder(tokenizer, self._calls.max_tokens, lower_case=self._calls.settings.lower_case)
        self._first = self._encoder.id_of(tokenizer.tokens.get("cls_token"))

    @checked_choices
    def __call__(
        self,
        question: str,
        context: str,
        *,
        top_k: int = 1,
        most_tokens: int = 15,
        may_have_none: bool = False,
        check: Callable[[], object] = lambda: None,
    ) -> list[Answer]:
        """Returns the best answers, the most probable first.

        A context that is longer than the model reads is read in windows, which share tokens.

        Args:
            question: the question.
            context: text that has the answer.
            top_k: number of answers; there may be fewer.
            most_tokens: the most tokens of an answer.
            may_have_none: whether one answer may be that the context has none.
            check: is called before each call of the model; what it raises ends the work.

        Raises:
            InputError: the question leaves no place for a context, or a number is below 1.
        """
        for name, number in (("top_k", top_k), ("most_tokens", most_tokens)):
            if number < 1:
                raise InputError(f"`{name}`: expected 1 or more; got {number}")
        if not context.strip():
            raise InputError("`context`: expected a text that has the answer; got an empty one")
        most = min(_MOST, self._calls.sequence)
        windows = self._encoder.encode_windows(
            question, context, self._calls.vocabulary, most=most, stride=min(most // 2, _STRIDE)
        )
        texts = [self._calls.typed(window.encoded) for window in windows]
        answers: list[Answer] = []
        nothing = np.inf
        for window, logits in zip(windows, self._calls.of_tokens(texts, check), strict=True):
            starts, ends = (self._probabilities(window, logits[:, side]) for side in (0, 1))
            nothing = min(nothing, float(starts[0] * ends[0]))
            starts[0] = ends[0] = 0.0
            for start, end, score in _spans(starts, ends, self._allowed(window), 2 * top_k + 10, most_tokens):
                _add(answers, context, *_characters(window.encoding, start, end), score)
        if may_have_none:
            answers.append(Answer("", nothing, 0, 0))
        return sorted(answers, key=lambda answer: -answer.score)[:top_k]

    def _allowed(self, window: TextTokens) -> np.ndarray:
        """Returns bool [tokens], true for tokens of the context and the first one."""
        ids, parts = window.encoding.ids, window.encoding.sequence_ids
        return np.array([part == 1 or number == self._first for number, part in zip(ids, parts, strict=True)])

    def _probabilities(self, window: TextTokens, logits: np.ndarray) -> np.ndarray:
        hidden = np.where(self._allowed(window), logits, _HIDDEN)
        powers = np.exp(hidden - hidden.max())
        return powers / powers.sum()


def _spans(
    starts: np.ndarray, ends: np.ndarray, allowed: np.ndarray, count: int, most_tokens: int
) -> list[tuple[int, int, float]]:
    """Returns the most probable spans of at most so many tokens, with their probabilities."""
    products = np.tril(np.triu(np.outer(starts, ends)), most_tokens - 1)
    flat = products.reshape(-1)
    best = np.argsort(-flat, kind="stable")[:count]
    places = [(int(start), int(end)) for start, end in zip(*np.unravel_index(best, products.shape), strict=True)]
    return [(start, end, float(products[start, end])) for start, end in places if allowed[start] and allowed[end]]


def _characters(encoding: tokenizers.Encoding, start: int, end: int) -> tuple[int, int]:
    """Returns the characters of whole words from a token to another; those of the tokens if they are in no word."""
    first, last = encoding.token_to_word(start), encoding.token_to_word(end)
    if first is not None and last is not None:
        left, right = encoding.word_to_chars(first, 1), encoding.word_to_chars(last, 1)
        if left is not None and right is not None:
            return left[0], right[1]
    return encoding.offsets[start][0], encoding.offsets[end][1]


def _add(answers: list[Answer], context: str, start: int, end: int, score: float) -> None:
    """Adds a span, or its probability to an answer of the same text."""
    text = context[start:end]
    for index, answer in enumerate(answers):
        if answer.text.lower() == text.lower():
            answers[index] = replace(answer, score=answer.score + score)
            return
    answers.append(Answer(text, score, start, end))
