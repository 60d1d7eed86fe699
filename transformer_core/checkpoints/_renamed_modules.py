"""Checkpoints whose modules have other names."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from lang_core import WeightSource
from transformer_core.checkpoints._recipes import Recipe, Stored

_NUMBER: Final = re.compile(r"\.(\d+)(?=\.|$)")

# Names of a norm's parameters in old checkpoints.
_OLD_KINDS: Final = {"weight": "gamma", "bias": "beta"}


class RenamedModules:
    """Recipes of a model whose modules all have other names in its checkpoints.

    Args:
        renamed: path of a module in the checkpoint, by that in the model, with ``{}`` for the number of a layer. A
            parameter of another module, whose last part is ``weight`` or not, is looked up by its whole path.
        above: prefixes that the checkpoint's keys may have; the first one found counts.
    """

    def __init__(self, renamed: Mapping[str, str], above: Sequence[str] = ()) -> None:
        self._renamed: Final = renamed
        self._above: Final = tuple(above)

    def key(self, name: str, source: WeightSource) -> str:
        """Returns the stored key of a parameter."""
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
        """Returns the recipe of a parameter: it is stored as it is."""
        return Stored(self.key(name, source), shape)

    def _found(self, key: str, source: WeightSource) -> str:
        module, _, kind = key.rpartition(".")
        old = f"{module}.{_OLD_KINDS.get(kind, kind)}"
        places = [f"{above}{path}" for path in (key, old) for above in ("", *self._above)]
        return next((place for place in places if source.has(place)), places[0])
