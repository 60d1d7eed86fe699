"""Modules that checkpoints store together, as equal parts of one."""

from collections.abc import Mapping

from lang_core import WeightSource
from transformer_core.checkpoints import Cut, Recipe, RecipeOf, RenamedModules, first_of

FUSED_QKV = {f"{part}_proj": ("qkv_proj", place, 3) for place, part in enumerate("qkv")}
"""Projections of queries, keys and values in one, for ``with_fused``."""


def with_fused(keys: RenamedModules, parts: Mapping[str, tuple[str, int, int]]) -> RecipeOf:
    """Returns recipes by name, and of modules that are stored as parts of another.

    Args:
        keys: names of modules, with the whole ones beside the parts.
        parts: by the last name of a module, that of the whole, its place in it, and the number of parts.
    """

    def fused(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        module, _, kind = name.rpartition(".")
        above, _, last = module.rpartition(".")
        if last not in parts:
            return None
        whole, place, count = parts[last]
        key = keys.key(f"{above}.{whole}.{kind}", source)
        return Cut(key, (count * shape[0], *shape[1:]), 0, place * shape[0], (place + 1) * shape[0])

    return first_of(fused, keys)
