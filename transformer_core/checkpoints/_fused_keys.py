"""Projections that checkpoints store in one tensor, one after another."""

from collections.abc import Mapping, Sequence
from typing import Final

from lang_core import WeightSource
from transformer_core.checkpoints._recipes import Cut, Recipe


class FusedKeys:
    """Recipes of projections that are stored fused, weights and biases alike.

    Args:
        fused: parts of each stored module and their numbers of rows, in order, e.g.
            ``{"mlp.gate_up_proj": [("gate_proj", F), ("up_proj", F)]}``. In the model the parts are where the fused
            module is in the checkpoint: ``mlp.gate_proj``.
    """

    def __init__(self, fused: Mapping[str, Sequence[tuple[str, int]]]) -> None:
        self._places: Final[dict[str, tuple[str, int, int, int]]] = {}
        for whole, parts in fused.items():
            rows, start = sum(size for _, size in parts), 0
            for part, size in parts:
                self._places[f"{whole.rpartition('.')[0]}.{part}"] = whole, rows, start, start + size
                start += size

    def __call__(self, name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        """Returns the recipe of a part; None for all other parameters."""
        *above, module, part, kind = ("", "", *name.split("."))
        place = self._places.get(f"{module}.{part}")
        if place is None:
            return None
        whole, rows, start, stop = place
        key = ".".join([*filter(None, above), whole, kind])
        return Cut(key, (rows, *shape[1:]), 0, start, stop)
