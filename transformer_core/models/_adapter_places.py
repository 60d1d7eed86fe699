"""Matrices as adapters name them, for the linear layers of a model that compute adapters beside their weights."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from lang_core import WeightSource
from transformer_core.checkpoints import AdapterPlace, Recipe, Transposed
from transformer_core.family._model import Model
from transformer_core.models._weights import OwnLayout, recipes_of

_WEIGHT: Final = ".weight"


def adapter_places(
    model: Model[Any], source: WeightSource, shapes: Mapping[str, tuple[int, int]]
) -> dict[str, AdapterPlace | None]:
    """Returns the places of weights that the checkpoint does not store as they are, by name.

    A checkpoint with a layout of its own, such as a GGUF file, gives none: adapters then have the names of the model.

    Args:
        model: modules.
        source: checkpoint; its header is enough.
        shapes: shapes [out, in] of the weights, by name.

    Returns:
        Places; None for a weight that is not made of rows of one matrix, for which no adapter can be taken.
    """
    if isinstance(source, OwnLayout):
        return {}
    recipes = recipes_of(model, source, shapes)
    places = {name: _place(recipe, shapes[name][0]) for name, recipe in recipes.items()}
    return {name: place for name, place in places.items() if place != AdapterPlace(name)}


def _place(recipe: Recipe, outputs: int) -> AdapterPlace | None:
    (key, shape), *others = recipe.stored().items()
    transposed = isinstance(recipe, Transposed)
    if others or not (recipe.keeps_rows or transposed) or len(shape) != 2 or not key.endswith(_WEIGHT):
        return None
    count = shape[1] if transposed else shape[0]
    probe: Any = _Numbered(count, transposed)
    rows = recipe.rows(probe, 0, outputs).reshape(-1)
    whole = np.array_equal(rows, np.arange(count))
    return AdapterPlace(key, None if whole else _parts(rows), transposed)


def _parts(rows: np.ndarray) -> tuple[tuple[int, int], ...]:
    """Returns the first number and the one behind the last of each run of successive numbers."""
    begins = np.flatnonzero(np.diff(rows, prepend=rows[0] - 2) != 1)
    ends = [*begins[1:], len(rows)]
    return tuple((int(rows[begin]), int(rows[end - 1]) + 1) for begin, end in zip(begins, ends, strict=True))


class _Numbered:
    """Stored matrix whose rows, or columns if it is transposed, have their numbers as values: one of the other axis."""

    def __init__(self, count: int, transposed: bool) -> None:
        self._numbers: Final = np.arange(count)
        self._transposed: Final = transposed

    def read_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Returns the numbers, [stop - start, 1], or all of them, [1, columns]."""
        del key
        return self._numbers[np.newaxis] if self._transposed else self._numbers[start:stop, np.newaxis]
