"""Bundles of encoder-decoders that take texts: one source at a time, and beams of answers to it."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from lang_core import InputError
from runtime import Held, Session
from tapeline.bundle import Bundle
from tapeline.runners._model import ENCODE, BundleModel, encoded

_SOURCE: Final = ["token_ids", "attention_mask"]


def takes_texts(bundle: Bundle) -> bool:
    """Returns whether a bundle encodes texts, and answers them by a decoder."""
    points = {point.name: point for point in bundle.config.entry_points}
    if ENCODE not in points or not {"prefill", "decode"} <= set(points):
        return False
    return [argument.name for argument in points[ENCODE].arguments] == _SOURCE


class SourceModel(BundleModel):
    """A bundle of an encoder-decoder that takes texts, for one sequence.

    Attributes:
        source_tokens: the most tokens of a source.
        source_vocabulary: number of the tokens that the encoder knows.
    """

    def __init__(self, bundle: Bundle, session: Session) -> None:
        """Makes empty caches; nothing is encoded yet.

        Raises:
            InputError: as for ``BundleModel``.
        """
        super().__init__(bundle, session, None)
        self.source_tokens = bundle.entry_point(ENCODE).arguments[0].spec.shape[1]
        self.source_vocabulary = int(bundle.config.model.get("source_vocabulary", self.vocabulary))

    def encode(self, source: Sequence[int]) -> None:
        """Encodes the tokens of a source, to which all calls that follow attend.

        Raises:
            InputError: the source has no token, or more than the bundle takes.
        """
        if not 1 <= len(source) <= self.source_tokens:
            raise InputError(
                f"a source of {len(source)} tokens: {self._bundle.path} encodes 1 to {self.source_tokens}; export with "
                f"sequence={max(len(source), 1)} or more"
            )
        ids, mask = np.zeros((2, 1, self.source_tokens), np.int32)
        ids[0, : len(source)], mask[0, : len(source)] = source, 1
        self._seen = encoded(self._bundle, self._session, (ids, mask))

    def beams(self, count: int) -> "BundleBeams":
        """Returns empty rows for as many answers to the source."""
        return BundleBeams(self, count)

    def zeros(self) -> Held:
        """Returns empty caches."""
        return self._session.hold([self._session.zeros(spec) for spec in self.cache_specs.values()])

    def copied(self, caches: Held) -> Held:
        """Returns a copy of caches, on the device."""
        return self._session.hold(caches.copies(range(len(self.cache_specs))))

    def append(self, caches: Held, token: int, position: int) -> np.ndarray:
        """Appends a token to caches and returns the logits f32 [V] after it."""
        results = self._decode.updating(caches, token, position, *self._seen)
        self.token_bytes += self._decode.token_bytes
        return np.array(results[0].numpy()).reshape(-1)


class BundleBeams:
    """Caches of several answers to one source: ``BeamRows`` of beam search. Rows are run one after the other."""

    def __init__(self, model: SourceModel, count: int) -> None:
        """Makes empty rows."""
        self._model: Final = model
        self._rows = [model.zeros()] * count  # they are the same until their first tokens differ
        self._position = 0

    def step(self, tokens: Sequence[int], parents: Sequence[int]) -> np.ndarray:
        """Appends a token to each row and returns the logits f32 [N, V] after them; see ``BeamRows``."""
        if not self._position:  # every row begins with the same token
            logits = self._model.append(self._rows[0], tokens[0], 0)
            self._position = 1
            return np.stack([logits] * len(tokens))
        taken: set[int] = set()
        rows: list[Held] = []
        for parent in parents:
            row = self._rows[parent]
            rows.append(self._model.copied(row) if id(row) in taken else row)
            taken.add(id(row))
        self._rows = rows
        logits = [self._model.append(row, token, self._position) for row, token in zip(rows, tokens, strict=True)]
        self._position += 1
        return np.stack(logits)
