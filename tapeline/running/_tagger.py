"""Classes of the tokens of texts, and spans of them, with a bundle of a classifier of tokens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from lang_core import InputError, checked_choices
from runtime import Session
from tapeline.bundle import Bundle
from tapeline.running._calls import TextCalls
from tapeline.running._labels import Labels, softmax
from tapeline.text import EncodedText, TextTokens, Tokenizer

Aggregation = Literal["none", "simple", "first", "average", "max"]
"""Way to spans, as in transformers: tokens alone; equal neighbours; words by their first, average or surest token."""

OUTSIDE: Final = "O"
"""Label of tokens of no span."""


@dataclass(frozen=True, slots=True)
class Tag:
    """Token or span of a text with its class.

    Attributes:
        label: name of the class; without ``B-`` and ``I-`` unless tokens stand alone.
        score: probability of the class.
        word: text of the tokens.
        start: its first character in the text.
        end: the one behind its last.
        index: number of the token; None for a span.
    """

    label: str
    score: float
    word: str
    start: int
    end: int
    index: int | None = None


@dataclass(frozen=True, slots=True)
class TaggedText:
    """Tags of a text.

    Attributes:
        tags: tokens or spans, in the order of the text.
        tokens: number of tokens that were read.
        truncated: number of tokens that were cut off.
    """

    tags: tuple[Tag, ...]
    tokens: int
    truncated: int


@dataclass(frozen=True, slots=True)
class _Piece:
    """Token or word, with the probabilities of its classes."""

    name: str
    scores: np.ndarray
    start: int
    end: int
    index: int
    continues: bool  # whether it continues a word


class TokenTagger:
    """Bundle of a classifier of tokens, in a session.

    Attributes:
        labels: names of the classes.
    """

    def __init__(self, bundle: Bundle, session: Session, tokenizer: Tokenizer) -> None:
        """Checks that the bundle classifies tokens.

        Raises:
            InputError: it does not.
            ConfigError: its files are damaged, or say what is not supported.
        """
        count, remedy = bundle.config.model.get("token_labels"), "export a model ForTokenClassification"
        if not count:
            raise InputError(f"{bundle.path} tags no tokens: {remedy}")
        self._calls = TextCalls(bundle, session, ("logits",), "tags no tokens", remedy)
        self.labels = Labels.read(bundle, int(count)).names
        self._encoder = self._calls.encoder(tokenizer)
        self._unknown = self._encoder.id_of(tokenizer.tokens.get("unk_token"))

    @checked_choices
    def __call__(
        self,
        texts: Sequence[str],
        aggregation: Aggregation = "simple",
        *,
        ignored: Sequence[str] = (OUTSIDE,),
        truncate: bool = True,
        check: Callable[[], object] = lambda: None,
    ) -> list[TaggedText]:
        """Returns the tags of each text.

        Args:
            texts: the texts.
            aggregation: way from tokens to spans.
            ignored: labels whose spans are left out.
            truncate: whether texts that are longer than the model reads are truncated, and not refused.
            check: is called before each text is encoded and each call of the model; what it raises ends the work.

        Raises:
            InputError: a text has more tokens than the bundle takes, or there is no such aggregation.
        """
        tokens: list[TextTokens] = []
        encoded: list[EncodedText] = []
        for text in texts:
            check()
            one = self._encoder.encode_tokens(text, self._calls.vocabulary)
            self._calls.check(text, one.encoded, truncate=truncate)
            tokens.append(one)
            encoded.append(self._calls.typed(one.encoded))
        logits = self._calls.of_tokens(encoded, check)
        tagged: list[TaggedText] = []
        for text, one, values in zip(texts, tokens, logits, strict=True):
            tags = self._tags(self._pieces(text, one, softmax(values)), aggregation)
            kept = tuple(tag for tag in tags if tag.label not in ignored)
            tagged.append(TaggedText(kept, len(one.encoded.ids), one.encoded.truncated))
        return tagged

    def _pieces(self, text: str, tokens: TextTokens, scores: np.ndarray) -> list[_Piece]:
        """Returns the tokens of a text that are not special."""
        encoding, pieces = tokens.encoding, list[_Piece]()
        rows = zip(encoding.ids, encoding.tokens, encoding.offsets, encoding.special_tokens_mask, strict=True)
        for index, (number, name, (start, end), special) in enumerate(rows):
            if special:
                continue
            inside = text[start:end]
            if self._encoder.marks_parts:
                continues = len(name) != len(inside)
            else:
                continues = start > 0 and " " not in text[start - 1 : start + 1]
            if number == self._unknown:
                name, continues = inside, False
            pieces.append(_Piece(name, scores[index], start, end, index, continues))
        return pieces

    def _tags(self, pieces: Sequence[_Piece], aggregation: Aggregation) -> list[Tag]:
        if aggregation in ("none", "simple"):
            tags = [self._tag(piece, piece.scores, piece.name, piece.end, piece.index) for piece in pieces]
            return tags if aggregation == "none" else self._spans(tags)
        words: list[list[_Piece]] = []
        for piece in pieces:
            if words and piece.continues:
                words[-1].append(piece)
            else:
                words.append([piece])
        return self._spans([self._word(word, aggregation) for word in words])

    def _word(self, pieces: Sequence[_Piece], aggregation: Aggregation) -> Tag:
        if aggregation == "first":
            scores = pieces[0].scores
        elif aggregation == "max":
            scores = max(pieces, key=lambda piece: piece.scores.max()).scores
        else:
            scores = np.nanmean(np.stack([piece.scores for piece in pieces]), axis=0)
        word = self._encoder.joined([piece.name for piece in pieces])
        return self._tag(pieces[0], scores, word, pieces[-1].end)

    def _tag(self, first: _Piece, scores: np.ndarray, word: str, end: int, index: int | None = None) -> Tag:
        best = int(scores.argmax())
        return Tag(self.labels[best], float(scores[best]), word, first.start, end, index)

    def _spans(self, tags: Sequence[Tag]) -> list[Tag]:
        """Joins neighbours of one class; a ``B-`` begins a span."""
        groups: list[list[Tag]] = []
        for tag in tags:
            begins, kind = _parts(tag.label)
            if groups and not begins and kind == _parts(groups[-1][-1].label)[1]:
                groups[-1].append(tag)
            else:
                groups.append([tag])
        return [
            Tag(
                group[0].label.split("-", 1)[-1],
                float(np.nanmean(np.array([tag.score for tag in group], np.float32))),
                self._encoder.joined([tag.word for tag in group]),
                group[0].start,
                group[-1].end,
            )
            for group in groups
        ]


def _parts(label: str) -> tuple[bool, str]:
    """Returns whether a label begins a span, and its class.

    >>> _parts("B-PER"), _parts("I-PER"), _parts("PER")
    ((True, 'PER'), (False, 'PER'), (False, 'PER'))
    """
    return label.startswith("B-"), label[2:] if label.startswith(("B-", "I-")) else label
