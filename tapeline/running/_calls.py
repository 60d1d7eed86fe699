"""Calls of the entry point of a bundle that takes whole texts."""

from collections.abc import Sequence

import numpy as np

from lang_core import InputError
from tapeline.bundle import Bundle
from tapeline.engines import Session

Encoded = tuple[list[int], list[int]]
"""Tokens of a text, and their types."""


class TextCalls:
    """Calls of ``forward`` on texts of tokens, as many at once as the bundle takes.

    Attributes:
        sequence: largest number of tokens of a text, special ones included.
        vocabulary: size of the vocabulary, V.
    """

    def __init__(self, bundle: Bundle, session: Session, result: str, does_not: str, remedy: str) -> None:
        """Checks that the bundle has the result.

        Args:
            bundle: the bundle.
            session: its session.
            result: name of the result of ``forward`` that is wanted.
            does_not: what a bundle without it does not do, for the message.
            remedy: what to do then.

        Raises:
            InputError: it does not.
        """
        forward = next((point for point in bundle.config.entry_points if point.name == "forward"), None)
        results = [] if forward is None else [one.name for one in forward.results]
        names = [] if forward is None else [argument.name for argument in forward.arguments]
        if forward is None or result not in results or "attention_mask" not in names:
            raise InputError(f"{bundle.path} {does_not} (it gives {', '.join(results) or 'none'}): {remedy}")
        self._batch, self.sequence = forward.arguments[0].spec.shape
        self._arguments = names
        self._result = results.index(result)
        self._forward = session.function("forward")
        self.vocabulary = int(bundle.config.model["vocabulary"])

    def __call__(self, texts: Sequence[Encoded]) -> np.ndarray:
        """Returns the result f32 [texts, ..]."""
        rows = [self._called(texts[i : i + self._batch]) for i in range(0, len(texts), self._batch)]
        return np.concatenate(rows)

    def check(self, text: str, tokens: int) -> None:
        """Checks that a text is not too long.

        Raises:
            InputError: it has more tokens than the bundle takes.
        """
        if tokens > self.sequence:
            raise InputError(
                f"{text[:40]!r}{'...' if len(text) > 40 else ''} has {tokens} tokens, the bundle takes "
                f"{self.sequence}: shorten it, or export with sequence={tokens} or more"
            )

    def _called(self, texts: Sequence[Encoded]) -> np.ndarray:
        """Runs up to B texts; rows that are left over repeat the first one, because every row needs a token."""
        ids = np.zeros((self._batch, self.sequence), np.int32)
        mask, types = np.zeros_like(ids), np.zeros_like(ids)
        for row in range(self._batch):
            tokens, kinds = texts[row] if row < len(texts) else texts[0]
            ids[row, : len(tokens)], types[row, : len(tokens)] = tokens, kinds
            mask[row, : len(tokens)] = 1
        given = {"token_ids": ids, "attention_mask": mask, "token_type_ids": types}
        results = self._forward(*(given[name] for name in self._arguments))
        return results[self._result].numpy()[: len(texts)]
