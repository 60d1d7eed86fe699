"""Keys under which checkpoints store experts."""

import re
from dataclasses import dataclass
from typing import Final

from lang_core import WeightSource
from transformer_core.checkpoints._recipes import Cut, Recipe, Stacked, Stored

_LAYER: Final = re.compile(r"(.*\.)?mlp\.(experts\.(?P<projection>gate_proj|up_proj|down_proj)|gate\.\w+)")


@dataclass(frozen=True, slots=True)
class ExpertKeys:
    """Stored keys of a family's experts, which the model has as ``mlp.experts.gate_proj`` [E, F, D] and so on.

    Two forms are known: one tensor per expert (``mlp.experts.3.gate_proj.weight`` [F, D]), which is what is published,
    and one tensor for all (``mlp.experts.gate_up_proj`` [E, 2 F, D] and ``mlp.experts.down_proj`` [E, D, F]), which is
    how transformers 5 holds them.

    Attributes:
        layer: module that stands for ``mlp`` in the keys of the form with one tensor per expert.
        gate: name of the gate projection in that form.
        up: name of the up projection.
        down: name of the down projection.
    """

    layer: str = "mlp"
    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"

    def __call__(self, name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        """Returns the recipe of a parameter of the router or the experts; None for all others."""
        match = _LAYER.fullmatch(name)
        if match is None:
            return None
        prefix, projection = match[1] or "", match["projection"]
        if projection is None:
            return None if source.has(name) else Stored(f"{prefix}{self.layer}.{name[len(prefix) + 4 :]}", shape)
        if source.has(f"{prefix}mlp.experts.down_proj"):
            return _fused(f"{prefix}mlp.experts.gate_up_proj", projection, shape)
        stored = {"gate_proj": self.gate, "up_proj": self.up, "down_proj": self.down}[projection]
        keys = [f"{prefix}{self.layer}.experts.{expert}.{stored}.weight" for expert in range(shape[0])]
        return Stacked(keys, shape[1:])


def _fused(key: str, projection: str, shape: tuple[int, ...]) -> Recipe | None:
    if projection == "down_proj":
        return None
    experts, inner, size = shape
    begin = 0 if projection == "gate_proj" else inner
    return Cut(key, (experts, 2 * inner, size), 1, begin, begin + inner)
