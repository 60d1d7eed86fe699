"""Stored keys of a decoder inside of a checkpoint that has further models, such as a vision tower."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from lang_core import WeightSource
from transformer_core.checkpoints._composed import RecipeOf
from transformer_core.checkpoints._recipes import Recipe, Shape, Stored

_PLACES: Final = ("model.language_model.", "language_model.model.", "language_model.", "model.")
_HEADS: Final = ("", "language_model.")


class WrappedKeys:
    """Recipes of a decoder's parameters in a checkpoint that has more than the decoder.

    Its tensors lie below ``model.language_model.`` or, in older files, ``language_model.model.``, or below
    ``language_model.`` in a checkpoint of the model without its head.

    Args:
        inner: recipes of the decoder alone; None if its checkpoints store its parameters.
    """

    def __init__(self, inner: RecipeOf | None = None) -> None:
        self._inner: Final = inner

    def __call__(self, name: str, shape: Shape, source: WeightSource) -> Recipe | None:
        """Returns the recipe of a parameter."""
        within: Any = _Within(source)
        recipe = None if self._inner is None else self._inner(name, shape, within)
        return Stored(wrapped_key(name, source), shape) if recipe is None else _Moved(recipe, source)


def wrapped_key(key: str, source: WeightSource) -> str:
    """Returns the key in a checkpoint that wraps a decoder of a tensor of that decoder."""
    below, inner = key.removeprefix("model."), key.startswith("model.")
    places: Sequence[str] = [f"{place}{below}" for place in _PLACES] if inner else [f"{head}{key}" for head in _HEADS]
    return next(filter(source.has, places), places[0])


class _Within:
    """Checkpoint seen as that of the decoder alone."""

    def __init__(self, source: Any) -> None:
        self._source: Final = source

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._source, name)
        return lambda key, *rest: method(wrapped_key(key, self._source), *rest)


class _Moved:
    """Recipe with stored tensors at other keys of a checkpoint."""

    def __init__(self, recipe: Recipe, source: WeightSource) -> None:
        self._recipe: Final = recipe
        self._source: Final = source

    @property
    def keeps_rows(self) -> bool:
        return self._recipe.keeps_rows

    def stored(self) -> dict[str, Shape]:
        """Returns the keys as the checkpoint has them, and their shapes."""
        return {wrapped_key(key, self._source): shape for key, shape in self._recipe.stored().items()}

    def rows(self, source: WeightSource, start: int, stop: int) -> np.ndarray:
        """Returns the recipe's rows."""
        within: Any = _Within(source)
        return self._recipe.rows(within, start, stop)
