"""Type of the cases of encoders."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class EncoderCase:
    """One tiny random encoder, and what makes it worth testing.

    Attributes:
        name: the case's name and the stem of its file in ``data/``.
        twist: what this case covers that the others do not, in one line.
        config: ``config.json``.
        seed: of weights and inputs.
        lengths: of the rows of text, the longest being T; empty of a model that takes none.
        must_matter: config changes, each of which must move the results visibly.
        pooling: sentence-transformers' mode, for a model with modules.json beside its config.json.
        steps: of greedy decoding, for a model that generates.
        dense: sizes of matrices after the pooling; the first has a bias and a tanh, others have neither.
        picture: height and width of pictures, if these are not as config.json says; preprocessor_config.json has them.
        score: tokens of a reranker's score, for a model with a LogitScore in modules.json.
    """

    name: str
    twist: str
    config: Mapping[str, Any]
    seed: int
    lengths: tuple[int, ...] = ()
    must_matter: tuple[Mapping[str, Any], ...] = ()
    pooling: str = ""
    steps: int = 0
    dense: tuple[int, ...] = ()
    score: tuple[int, ...] = ()
    picture: tuple[int, ...] = ()

    @property
    def architecture(self) -> str:
        """The first of ``architectures``."""
        return self.config["architectures"][0]

    def digest(self) -> str:
        """SHA-256 of everything the golden file depends on."""
        facts = [dict(self.config), self.seed, self.lengths, self.pooling, self.steps]
        facts += [part for part in (self.dense, self.score, self.picture) if part]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
