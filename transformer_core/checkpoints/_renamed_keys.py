"""Parameters that checkpoints store under other names."""

from collections.abc import Mapping
from typing import Final

from lang_core import WeightSource
from transformer_core.checkpoints._composed import RecipeOf
from transformer_core.checkpoints._recipes import Recipe, Stored


class RenamedKeys:
    """Recipes of modules that are stored under other names.

    Args:
        renamed: last part of a module's path in the checkpoint, by that in the model.
    """

    def __init__(self, renamed: Mapping[str, str]) -> None:
        self._renamed: Final = renamed

    def __call__(self, name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        """Returns the recipe of a parameter of such a module; None for all others."""
        *above, module, kind = ("", *name.split("."))
        stored = self._renamed.get(module)
        return None if stored is None else Stored(".".join([*filter(None, above), stored, kind]), shape)


def first_of(*recipes: RecipeOf) -> RecipeOf:
    """Returns a ``RecipeOf`` that asks several in turn, and gives the first recipe."""

    def recipe_of(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        return next((recipe for ask in recipes if (recipe := ask(name, shape, source)) is not None), None)

    return recipe_of
