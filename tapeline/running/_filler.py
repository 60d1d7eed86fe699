"""Tokens for the masks in texts, with a bundle of a masked language model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from lang_core import InputError
from runtime import Session
from tapeline.bundle import Bundle
from tapeline.running._calls import TextCalls
from tapeline.running._labels import softmax
from tapeline.text import EncodedText, Tokenizer


@dataclass(frozen=True, slots=True)
class Filling:
    """Token in the place of a mask.

    Attributes:
        token: its id.
        token_text: its text.
        score: probability of the token.
        text: text with the token; of several masks, the others stay.
    """

    token: int
    token_text: str
    score: float
    text: str


class MaskFiller:
    """Bundle of a masked language model, in a session.

    Attributes:
        mask: text of the mask.
    """

    def __init__(self, bundle: Bundle, session: Session, tokenizer: Tokenizer) -> None:
        """Checks that the bundle predicts masked tokens.

        Raises:
            InputError: it does not, or its tokenizer has no mask.
            ConfigError: its files are damaged, or say what is not supported.
        """
        remedy = "export a model ForMaskedLM"
        self._calls = TextCalls(bundle, session, ("logits",), "fills no masks", remedy)
        if any(bundle.config.model.get(name) for name in ("labels", "token_labels")):
            raise InputError(f"{bundle.path} fills no masks, its logits are of classes: {remedy}")
        self._tokenizer = tokenizer
        self._encoder = self._calls.encoder(tokenizer)
        name = tokenizer.tokens.get("mask_token")
        mask = self._encoder.id_of(name)
        if name is None or mask is None:
            raise InputError(f"{bundle.path}: its tokenizer names no mask_token: put its tokenizer_config.json there")
        self.mask, self._mask = name, mask
        self._padding = self._encoder.id_of(tokenizer.tokens.get("pad_token"))

    def __call__(
        self,
        texts: Sequence[str],
        top_k: int = 5,
        targets: Sequence[str] = (),
        *,
        truncate: bool = False,
        check: Callable[[], object] = lambda: None,
    ) -> list[list[list[Filling]]]:
        """Returns, for each mask of each text, the most probable tokens.

        Args:
            texts: texts with one or more masks.
            top_k: number of tokens.
            targets: tokens among which are chosen; all of the vocabulary if there are none.
            truncate: whether texts that are longer than the model reads are truncated, and not refused.
            check: is called before each text is encoded and each call of the model; what it raises ends the work.

        Raises:
            InputError: a text has no mask or more tokens than the bundle takes, or a target is no token.
        """
        if top_k < 1:
            raise InputError(f"`top_k`: expected 1 or more; got {top_k}")
        among = self._targets(targets)
        encoded: list[EncodedText] = []
        for text in texts:
            check()
            one = self._encoder.encode(text, self._calls.vocabulary)
            self._calls.check(text, one, truncate=truncate)
            if self._mask not in one.ids:
                raise InputError(
                    f"{text[:40]!r} has no mask{' left' if one.truncated else ''}: write {self.mask} in it"
                )
            encoded.append(self._calls.typed(one))
        rows = self._calls.of_tokens(encoded, check)
        return [self._filled(one.ids, logits, top_k, among) for one, logits in zip(encoded, rows, strict=True)]

    def _targets(self, targets: Sequence[str]) -> np.ndarray | None:
        ids = [self._encoder.id_of(target) for target in targets]
        for target, number in zip(targets, ids, strict=True):
            if number is None:
                raise InputError(
                    f"`targets`: expected tokens of the vocabulary; {target!r} is none (tokens that begin a word may "
                    "have a mark before them, such as Ġ or ▁)"
                )
        return np.array(sorted({number for number in ids if number is not None})) if targets else None

    def _filled(
        self, ids: Sequence[int], logits: np.ndarray, top_k: int, among: np.ndarray | None
    ) -> list[list[Filling]]:
        places = [place for place, number in enumerate(ids) if number == self._mask]
        return [self._best(ids, place, softmax(logits[place]), top_k, among, len(places)) for place in places]

    def _best(
        self,
        ids: Sequence[int],
        place: int,
        scores: np.ndarray,
        top_k: int,
        among: np.ndarray | None,
        masks: int,
    ) -> list[Filling]:
        known = np.arange(len(scores)) if among is None else among
        best = known[np.argsort(-scores[known], kind="stable")[:top_k]]
        fillings: list[Filling] = []
        for token in best.tolist():
            filled = [token if index == place else number for index, number in enumerate(ids)]
            kept = [number for number in filled if number != self._padding]
            text = self._tokenizer.decode(kept, special_tokens=masks > 1)
            name = self._tokenizer.decode([token], special_tokens=True)
            fillings.append(Filling(token, name, float(scores[token]), text))
        return fillings
