"""Checkpoints whose modules have names of their own."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from lang_core import WeightSource
from transformer_core.checkpoints._recipes import Recipe, Stored

_NUMBER: Final = re.compile(r"\.(\d+)(?=\.|$)")

# What old checkpoints call the parameters of a norm.
_OLD_KINDS: Final = {"weight": "gamma", "bias": "beta"}


class RenamedModules:
    """Recipes of a model whose modules are all called otherwise in its checkpoints.

    Args:
        renamed: from a module's path in the model to that in the checkpoint, with ``{}`` for the number of a layer.
            A parameter of another module, whose last part is ``weight`` or not, is looked for under its whole path.
        above: what may stand before all of the checkpoint's keys; what is found there first counts.
    """

    def __init__(self, renamed: Mapping[str, str], above: Sequence[str] = ()) -> None:
        self._renamed: Final = renamed
        self._above: Final = tuple(above)

    def key(self, name: str, source: WeightSource) -> str:
        """The stored key of a parameter's path."""
        module, _, kind = name.rpartition(".")
        number = _NUMBER.search(module)
        path = module if number is None else f"{module[: number.start()]}.{{}}{module[number.end() :]}"
        if name in self._renamed:
            stored = self._renamed[name]
        elif path in self._renamed:
            stored = f"{self._renamed[path].format('' if number is None else number[1])}.{kind}"
        else:
            stored = name
        return self._found(stored, source)

    def __call__(self, name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        """The recipe of a parameter: it is stored as it is."""
        return Stored(self.key(name, source), shape)

    def _found(self, key: str, source: WeightSource) -> str:
        module, _, kind = key.rpartition(".")
        old = f"{module}.{_OLD_KINDS.get(kind, kind)}"
        places = [f"{above}{each}" for each in (key, old) for above in ("", *self._above)]
        return next((place for place in places if source.has(place)), places[0])
