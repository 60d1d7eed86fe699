"""Stored keys of a decoder inside of a checkpoint that has further models, such as a vision tower."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from lang_core import WeightSource
from transformer_core.checkpoints._composed import RecipeOf
from transformer_core.checkpoints._recipes import Recipe, Shape, Stored

PLACES: Final = ("model.language_model.", "language_model.model.", "language_model.", "model.")
"""Prefixes of the keys of a decoder within another model."""

_HEADS: Final = ("", "language_model.")


class WrappedKeys:
    """Recipes of a decoder's parameters in a checkpoint that has more than the decoder.

    Its tensors lie below ``model.language_model.`` or, in older files, ``language_model.model.``, or below
    ``language_model.`` in a checkpoint of the model without its head.

    Args:
        inner: recipes of the decoder alone; None if its checkpoints store its parameters.
        places: prefixes that the decoder's keys may have.
    """

    def __init__(self, inner: RecipeOf | None = None, places: Sequence[str] = PLACES) -> None:
        self._inner: Final = inner
        self._places: Final = places

    def __call__(self, name: str, shape: Shape, source: WeightSource) -> Recipe | None:
        """Returns the recipe of a parameter."""
        within: Any = _Within(source, self._places)
        recipe = None if self._inner is None else self._inner(name, shape, within)
        if recipe is None:
            return Stored(wrapped_key(name, source, self._places), shape)
        return _Moved(recipe, source, self._places)


def wrapped_key(key: str, source: WeightSource, places: Sequence[str] = PLACES) -> str:
    """Returns the key in a checkpoint that wraps a decoder of a tensor of that decoder."""
    below, inner = key.removeprefix("model."), key.startswith("model.")
    keys = [f"{place}{below}" for place in places] if inner else [f"{head}{key}" for head in _HEADS]
    return next(filter(source.has, keys), keys[0])


class _Within:
    """Checkpoint seen as that of the decoder alone."""

    def __init__(self, source: Any, places: Sequence[str]) -> None:
        self._source: Final = source
        self._places: Final = places

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._source, name)
        return lambda key, *rest: method(wrapped_key(key, self._source, self._places), *rest)


class _Moved:
    """Recipe with stored tensors at other keys of a checkpoint."""

    def __init__(self, recipe: Recipe, source: WeightSource, places: Sequence[str]) -> None:
        self._recipe: Final = recipe
        self._source: Final = source
        self._places: Final = places

    @property
    def keeps_rows(self) -> bool:
        return self._recipe.keeps_rows

    def stored(self) -> dict[str, Shape]:
        """Returns the keys as the checkpoint has them, and their shapes."""
        return {wrapped_key(key, self._source, self._places): shape for key, shape in self._recipe.stored().items()}

    def rows(self, source: WeightSource, start: int, stop: int) -> np.ndarray:
        """Returns the recipe's rows."""
        within: Any = _Within(source, self._places)
        return self._recipe.rows(within, start, stop)
