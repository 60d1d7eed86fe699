"""Stored keys of multi-token prediction heads that checkpoints have as one more layer."""

from typing import Final

from lang_core import WeightSource
from transformer_core.checkpoints import Recipe, RecipeOf, Stored

_STORED: Final = {
    "mtp.fc.": "eh_proj.",
    "mtp.pre_fc_norm_embedding.": "enorm.",
    "mtp.pre_fc_norm_hidden.": "hnorm.",
    "mtp.norm.": "shared_head.norm.",
    "mtp.layers.0.": "",
}
"""Names of a head's modules in checkpoints that have it as one more layer (DeepSeek-V3)."""


def layered_head(layers: int, below: RecipeOf | None = None) -> RecipeOf:
    """Returns the recipes of a family with the head stored as a layer after the last.

    Args:
        layers: L.
        below: recipes of parameters that are not stored as they are.
    """

    def recipe_of(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        module = next((module for module in _STORED if name.startswith(module)), None)
        key = name if module is None else f"model.layers.{layers}.{_STORED[module]}{name.removeprefix(module)}"
        recipe = None if below is None else below(key, shape, source)
        return Stored(key, shape) if recipe is None else recipe

    return recipe_of
