"""Classes of texts and of pairs of texts, with a bundle of a classifier."""

from collections.abc import Callable, Sequence
from typing import Final

from lang_core import InputError, checked_choices
from runtime import Session
from tapeline.bundle import Bundle
from tapeline.running._calls import TextCalls
from tapeline.running._labels import Labels, softmax
from tapeline.running._text_array import TextArray
from tapeline.text import EncodedText, Tokenizer

HYPOTHESIS: Final = "This example is {}."
"""Hypothesis of a class, as in transformers' zero-shot classification."""


# Ends of architectures; rerankers by tokens have labels, too.
_CLASSIFIERS: Final = ("ForSequenceClassification", "ForNextSentencePrediction")


class TextClassifier:
    """Bundle of a classifier of texts, in a session.

    Attributes:
        labels: names of the classes.
    """

    def __init__(self, bundle: Bundle, session: Session, tokenizer: Tokenizer) -> None:
        """Checks that the bundle classifies texts.

        Raises:
            InputError: it does not.
            ConfigError: its files are damaged, or say what is not supported.
        """
        remedy = "export a model ForSequenceClassification"
        if not classifies(bundle):
            raise InputError(f"{bundle.path} classifies no texts: {remedy}")
        self._calls = TextCalls(bundle, session, ("logits",), "classifies no texts", remedy)
        self._labels = Labels.read(bundle, int(bundle.config.model["labels"]))
        self.labels = self._labels.names
        self._path = bundle.path
        self._encoder = self._calls.encoder(tokenizer)

    @checked_choices
    def __call__(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        raw: bool = False,
        truncate: bool = True,
        check: Callable[[], object] = lambda: None,
    ) -> TextArray:
        """Returns the scores f32 [texts, labels].

        Args:
            texts: the texts.
            pairs: a second text for each; an empty one, and None, are none, as in transformers.
            raw: whether logits are returned as they are.
            truncate: whether texts that are longer than the model reads are truncated, and not refused.
            check: is called before each text is encoded and each call of the model; what it raises ends the work.

        Raises:
            InputError: a text has more tokens than the bundle takes, or there are not as many second texts.
        """
        if pairs is not None and len(pairs) != len(texts):
            raise InputError(f"`pairs`: expected {len(texts)} texts, one for each of `texts`; got {len(pairs)}")
        encoded: list[EncodedText] = []
        size = self._calls.vocabulary
        for index, text in enumerate(texts):
            check()
            second = "" if pairs is None else pairs[index]
            one = self._encoder.encode_pair(text, second, size) if second else self._encoder.encode(text, size)
            encoded.append(self._checked(text, one, truncate=truncate))
        logits = self._calls(encoded, check=check)
        return TextArray.of(logits if raw else self._labels.scores(logits), encoded)

    @checked_choices
    def among(
        self,
        texts: Sequence[str],
        labels: Sequence[str],
        *,
        hypothesis: str = HYPOTHESIS,
        several: bool = False,
        truncate: bool = True,
        check: Callable[[], object] = lambda: None,
    ) -> TextArray:
        """Returns the scores f32 [texts, labels] of classes that the model has not learned.

        Args:
            texts: the texts, premises of a model of natural-language inference.
            labels: the classes.
            hypothesis: text with ``{}`` in the place of a class; it follows from a text that is of this class.
            several: whether a text may be of several classes, so that each score is independent of the others.
            truncate: as of a call.
            check: as of a call.

        Raises:
            InputError: the model has no class of entailment, there are no labels, or the hypothesis has no place.
        """
        entails = self._labels.entailment
        if entails is None or len(self.labels) < 2:
            raise InputError(
                f"{self._path} classifies with its own labels only ({', '.join(self.labels)}): labels of your own need "
                "a model of natural-language inference, which has a label that begins with entail"
            )
        if not labels:
            raise InputError("`labels`: expected one or more names of classes; got none")
        if hypothesis.replace("{}", "") == hypothesis:
            raise InputError(f"`hypothesis`: expected a text with {{}} in the place of a label; got {hypothesis!r}")
        encoded: list[EncodedText] = []
        for text in texts:
            for label in labels:
                check()
                claim = hypothesis.replace("{}", label)
                pair = self._encoder.encode_pair(text, claim, self._calls.vocabulary, "only_first")
                encoded.append(self._checked(text, pair, truncate=truncate))
        logits = self._calls(encoded, check=check).reshape(len(texts), len(labels), -1)
        if several or len(labels) == 1:
            contradicts = -1 if entails == 0 else 0
            scores = softmax(logits[..., [contradicts, entails]])[..., 1]
        else:
            scores = softmax(logits[..., entails])
        return TextArray.counted(scores, encoded, len(labels))

    def _checked(self, text: str, encoded: EncodedText, *, truncate: bool) -> EncodedText:
        self._calls.check(text, encoded, truncate=truncate)
        return self._calls.typed(encoded)


def classifies(bundle: Bundle) -> bool:
    """Returns whether a bundle gives scores of the classes of a text."""
    forward = next((point for point in bundle.config.entry_points if point.name == "forward"), None)
    model = bundle.config.model
    if forward is None or not model.get("labels") or not str(model.get("family")).endswith(_CLASSIFIERS):
        return False
    return "attention_mask" in [argument.name for argument in forward.arguments]
