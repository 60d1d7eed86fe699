"""A model of sentence-transformers as a bundle that is called in the eager context."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from lang_core import EagerExecutionContext
from tapeline.bundle import TextSettings
from transformer_core import PACKED
from transformer_core.models import entry_points, load_model, weights_of


class EagerBundle:
    """A model as a bundle that is called in the eager context; keeps tokens and entry points of its calls.

    ``packed`` are the lengths of rows that texts share.
    """

    def __init__(
        self, directory: Path, weights: Any, batch: int = 1, sequence: int | None = None, packed: Sequence[int] = ()
    ) -> None:
        self.model = load_model(directory)
        limit = TextSettings.read(directory).max_tokens
        lengths = self.model.text_lengths(limit) if sequence is None else (sequence,)
        sizes: Any = {"batch": batch, "sequence": lengths[-1], "lengths": lengths[:-1], "packed": packed}
        self.points = entry_points(self.model, **sizes)
        self._ctx = EagerExecutionContext(weights_of(self.model, weights))
        self.calls: list[np.ndarray] = []
        self.names: list[str] = []
        records = [
            SimpleNamespace(name=point.name, arguments=point.arguments, results=self._results(point))
            for point in self.points
        ]
        facts = {"family": self.model.config.architecture, **self.model.config.facts()}
        self.path, self.config = directory, SimpleNamespace(entry_points=records, model=facts)

    def _results(self, point: Any) -> list[Any]:
        ones = [self._ctx.constant(np.ones(one.spec.shape, np.int32)) for one in point.arguments]
        return [SimpleNamespace(name=name, spec=tensor.spec) for name, tensor in point(self._ctx, *ones).items()]

    def entry_point(self, name: str) -> Any:
        return next(one for one in self.config.entry_points if one.name == name)

    def function(self, name: str) -> Callable[..., list[Any]]:
        point = next(one for one in self.points if one.name == name)

        def call(*arrays: np.ndarray) -> list[Any]:
            self.names.append(name)
            self.calls.append(arrays[0][arrays[1] >= 0 if name.startswith(PACKED) else arrays[1] != 0])
            return [*point(self._ctx, *map(self._ctx.constant, arrays)).values()]

        return call
