"""Models that classify texts."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from lang_core import checked_choices
from tapeline.running import TextArray
from tapeline.server._lengths import check_lengths
from tapeline.server._text_batches import TextBatches, TextSettings
from tapeline.server._texts_model import TextsModel
from tapeline.text import Tokenizer


class TextClassifying(Protocol):
    """``LoadedModel`` of a classifier, as far as the server needs it."""

    @cached_property
    def tokenizer(self) -> Tokenizer | None:
        """Tokenizer of the model; None if it has none."""
        ...

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the classes."""
        ...

    def classify(
        self,
        texts: Sequence[str],
        *,
        raw: bool = False,
        truncate: bool = True,
        check: Callable[[], object] | None = None,
    ) -> TextArray:
        """Returns scores f32 [texts, labels] of each text; ``check`` is called as the work goes on."""
        ...

    def close(self) -> None:
        """Closes the session."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Classifying(TextsModel, ABC):
    """Model that gives the scores of the classes of texts."""

    @property
    @abstractmethod
    def labels(self) -> tuple[str, ...]:
        """Names of the classes.

        Raises:
            InputError: the model has none.
        """

    @property
    @abstractmethod
    def classifying_tokenizer(self) -> Tokenizer | None:
        """Tokenizer of the classifier; None if it has none."""

    @abstractmethod
    async def classify_batched(self, texts: Sequence[str], *, raw: bool = False, truncate: bool = True) -> TextArray:
        """Returns scores f32 [texts, labels], or logits; calls take texts of several requests.

        Raises:
            InputError: a text has more tokens than the model takes, or the model classifies none.
            BusyError: too many calls wait.
        """

    @abstractmethod
    def check_texts(self, texts: Sequence[str], field: str) -> None:
        """Checks the lengths of texts before they are encoded.

        Raises:
            RequestError: a text is too long, or all together are; ``field`` has the texts.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifyingModel(Classifying):
    """Classifier, for several threads: one call runs at a time.

    Attributes:
        classifier: makes the scores.
    """

    classifier: TextClassifying
    _batches: TextBatches = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_batches", TextBatches(self._turns, self._classified))

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the classes."""
        return self.classifier.labels

    @property
    def classifying_tokenizer(self) -> Tokenizer | None:
        """Tokenizer of the classifier; None if it has none."""
        return self.classifier.tokenizer

    @checked_choices
    async def classify_batched(self, texts: Sequence[str], *, raw: bool = False, truncate: bool = True) -> TextArray:
        """Returns scores f32 [texts, labels], or logits."""
        return await self._batches.result(texts, TextSettings(truncate=truncate, raw=raw))

    def _classified(self, texts: Sequence[str], settings: TextSettings) -> TextArray:
        beat, options = self._turns.activity.beat, {"raw": settings.raw, "truncate": settings.truncate}
        return self._turns.take(lambda: self.classifier.classify(texts, **options, check=beat))

    def check_texts(self, texts: Sequence[str], field: str) -> None:
        """Checks the lengths of texts before they are encoded."""
        check_lengths([len(text) for text in texts], self.context, field)

    def close(self) -> None:
        """Frees the model."""
        self._turns.last(self.classifier.close)
