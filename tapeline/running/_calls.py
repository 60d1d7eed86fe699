"""Calls of the entry points of a bundle that take whole texts."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Final

import numpy as np

from lang_core import InputError
from runtime import Session
from tapeline.bundle import Bundle, TextSettings
from tapeline.running._text_rows import TextRow, plan_calls
from tapeline.text import EncodedText, TextEncoder, Tokenizer
from transformer_core import PACKED

FORWARD = "forward"
"""Name of the entry point of whole texts; shorter ones are ``forward_T``."""
_GIVEN: Final = {"token_ids", "attention_mask", "token_type_ids", "pooling_mask"}  # arguments that a text gives


class TextCalls:
    """Calls of a bundle on texts of tokens, as many at once as the bundle takes, with little padding.

    Texts share rows if the bundle has entry points of packed texts and that is faster. Otherwise a call takes as many
    texts as ``forward`` has rows, in the shortest length that fits.

    Attributes:
        sequence: largest number of tokens of a text that the bundle takes, special ones included.
        max_tokens: largest number of tokens of a text that the model reads; longer texts are truncated.
        vocabulary: size of the vocabulary, V.
        settings: settings of texts in the bundle's files.
    """

    def __init__(self, bundle: Bundle, session: Session, results: Sequence[str], does_not: str, remedy: str) -> None:
        """Checks that the bundle has the results.

        Args:
            bundle: the bundle.
            session: its session.
            results: names of results of ``forward``; several have the same shape, and are stacked behind it.
            does_not: feature that a bundle without them lacks, for the message.
            remedy: the fix.

        Raises:
            InputError: it does not.
        """
        forward = next((point for point in bundle.config.entry_points if point.name == FORWARD), None)
        known = [] if forward is None else [one.name for one in forward.results]
        names = [] if forward is None else [argument.name for argument in forward.arguments]
        if forward is None or not set(results) <= set(known) or "attention_mask" not in names:
            raise InputError(f"{bundle.path} {does_not} (it gives {', '.join(known) or 'none'}): {remedy}")
        others = sorted(set(names) - _GIVEN)
        if others:
            raise InputError(
                f"{bundle.path} {does_not} by themselves, it also takes {', '.join(others)}: give all arguments, with "
                "`tapeline run --input=NAME=FILE.npy`"
            )
        self._batch, self.sequence = forward.arguments[0].spec.shape
        self._arguments = names
        self._results = [known.index(result) for result in results]
        self._shape = forward.results[self._results[0]].spec.shape[1:]
        self._sizes = _sizes(bundle)
        self._rows, self._row_arguments = _rows(bundle)
        self._function = cache(session.function)
        model = bundle.config.model
        self.vocabulary = int(model["vocabulary"])
        self.settings = TextSettings.read(bundle.path)
        limits = (self.settings.max_tokens, model.get("positions"))
        self.max_tokens = min((int(one) for one in limits if one is not None), default=None)

    def encoder(self, tokenizer: Tokenizer) -> TextEncoder:
        """Returns the encoder of texts for the model, with a tokenizer of its bundle."""
        settings = self.settings
        return TextEncoder(tokenizer, self.max_tokens, lower_case=settings.lower_case, from_left=settings.from_left)

    def typed(self, text: EncodedText) -> EncodedText:
        """Returns a text with the token types that the model was trained on: all 0 if its tokenizer tells none."""
        return text if self.settings.token_types else replace(text, types=[0] * len(text.ids))

    def __call__(
        self, texts: Sequence[EncodedText], skipped: int = 0, check: Callable[[], object] = lambda: None
    ) -> np.ndarray:
        """Returns the result f32 [texts, ..].

        Args:
            texts: tokens of each text.
            skipped: number of tokens at the beginning of each that are not pooled.
            check: called before each call of the entry point; its exceptions end the work.
        """
        if not texts:
            return np.zeros((0, *self._shape), np.float32)
        return np.stack(self._rows_of(texts, skipped, check))

    def of_tokens(self, texts: Sequence[EncodedText], check: Callable[[], object] = lambda: None) -> list[np.ndarray]:
        """Returns the result f32 [tokens, ..] of each text; arguments as of a call."""
        rows = self._rows_of(texts, 0, check)
        return [row[: len(text.ids)] for row, text in zip(rows, texts, strict=True)]

    def _rows_of(self, texts: Sequence[EncodedText], skipped: int, check: Callable[[], object]) -> list[np.ndarray]:
        """Returns the result of each text; one that has tokens has those of padding behind them."""
        rows: list[np.ndarray] = [np.zeros(())] * len(texts)
        sizes = [size for size, _ in self._sizes]
        for call in plan_calls([len(text.ids) for text in texts], sizes, self._batch, self._rows):
            check()
            chosen = [texts[index] for index in call.texts]
            values = self._alone(chosen, skipped) if call.row is None else self._shared(call.row, chosen, skipped)
            for index, value in zip(call.texts, values, strict=True):
                rows[index] = value
        return rows

    def check(self, text: str, encoded: EncodedText, *, truncate: bool = True) -> None:
        """Checks that the bundle takes a text.

        Raises:
            InputError: it has more tokens than the bundle takes, or than the model reads and ``truncate`` is False.
        """
        tokens = len(encoded.ids)
        shown = f"{text[:40]!r}{'...' if len(text) > 40 else ''}"
        if encoded.truncated and not truncate:
            raise InputError(
                f"{shown} has {tokens + encoded.truncated} tokens, the model reads {tokens}: shorten it, or let it be "
                "truncated"
            )
        if tokens > self.sequence:
            enough = f"{tokens}, the most that the model reads" if encoded.truncated else f"{tokens} or more"
            raise InputError(
                f"{shown} has {tokens + encoded.truncated} tokens, the bundle takes {self.sequence}: shorten it, or "
                f"export with sequence={enough}"
            )

    def _alone(self, texts: Sequence[EncodedText], skipped: int) -> np.ndarray:
        """Runs up to B texts; rows that are left over repeat the first one, because every row needs a token."""
        longest = max(len(text.ids) for text in texts)
        length, name = next(size for size in self._sizes if size[0] >= longest)
        ids = np.zeros((self._batch, length), np.int32)
        mask, types = np.zeros_like(ids), np.zeros_like(ids)
        for row in range(self._batch):
            text = texts[row] if row < len(texts) else texts[0]
            tokens = len(text.ids)
            ids[row, :tokens], types[row, :tokens] = text.ids, text.types
            mask[row, : tokens - text.unseen] = 1
        pooled = np.where(np.arange(length) < skipped, 0, mask).astype(np.int32)
        given = {"token_ids": ids, "attention_mask": mask, "token_type_ids": types, "pooling_mask": pooled}
        results = self._function(name)(*(given[argument] for argument in self._arguments))
        arrays = [results[index].numpy()[: len(texts)] for index in self._results]
        return arrays[0] if len(arrays) == 1 else np.stack(arrays, -1)

    def _shared(self, row: TextRow, texts: Sequence[EncodedText], skipped: int) -> np.ndarray:
        """Runs texts that share a row."""
        arrays = row.arrays(texts, skipped)
        (result,) = self._function(row.name)(*(arrays[argument] for argument in self._row_arguments))
        return result.numpy()[: len(texts)]


def _sizes(bundle: Bundle) -> list[tuple[int, str]]:
    """Returns the lengths of ``forward``, ascending, each with the name of its entry point."""
    points = [point for point in bundle.config.entry_points if point.name.partition("_")[0] == FORWARD]
    return sorted((point.arguments[0].spec.shape[1], point.name) for point in points)


def _rows(bundle: Bundle) -> tuple[list[TextRow], list[str]]:
    """Returns the rows that texts can share, by ascending tokens, and the names of their arguments."""
    points = [point for point in bundle.config.entry_points if point.name.partition("_")[0] == PACKED]
    rows, names = list[TextRow](), list[str]()
    for point in points:
        specs = {argument.name: argument.spec for argument in point.arguments}
        names = list(specs)
        rows.append(TextRow(point.name, specs["token_ids"].shape[1], specs["key_places"].shape[1]))
    return sorted(rows, key=lambda row: row.tokens), names
